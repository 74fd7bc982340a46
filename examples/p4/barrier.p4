// Barriers in a switch programmed in P4_16 (v1model): the tables that `unisono tree export --to p4` fills.
//
// An arrival (kind 0) waits in two registers of its group until every port below has one; the last arrival goes up,
// or turns around as a release at the top of the tree. A release (kind 1) is copied to all ports below. Data are
// combined by OR. As in the paper, links lose no message; the number of the episode is passed on and not checked.
//
// Compile: p4c --target bmv2 --arch v1model barrier.p4. The masks have 64 bits, for switches of up to 64 ports.

#include <core.p4>
#include <v1model.p4>

const bit<16> BARRIER = 0x88b5;
const bit<2> ARRIVAL = 0;
const bit<2> RELEASE = 1;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header sync_t {
    bit<2> kind;
    bit<8> group;
    bit<6> data;
    bit<16> episode;
}

struct headers {
    ethernet_t ethernet;
    sync_t sync;
}

struct metadata {
    bit<64> seen;
    bit<64> all;
    bit<6> data;
    bit<2> kind;
}

parser frames(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            BARRIER: sync;
            default: accept;
        }
    }
    state sync {
        packet.extract(hdr.sync);
        transition accept;
    }
}

control barrier(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    // by group: the ports whose arrivals have been received, and the data of these arrivals
    register<bit<64>>(256) arrived;
    register<bit<6>>(256) combined;

    // the last arrival goes up through a port
    action arrive(@name("bit") bit<64> own, bit<64> all, bit<9> egress_port) {
        arrived.read(meta.seen, (bit<32>)hdr.sync.group);
        combined.read(meta.data, (bit<32>)hdr.sync.group);
        meta.seen = meta.seen | own;
        meta.all = all;
        meta.kind = ARRIVAL;
        standard_metadata.egress_spec = egress_port;
    }

    // the last arrival becomes the release
    action turn(@name("bit") bit<64> own, bit<64> all, bit<16> multicast_group) {
        arrived.read(meta.seen, (bit<32>)hdr.sync.group);
        combined.read(meta.data, (bit<32>)hdr.sync.group);
        meta.seen = meta.seen | own;
        meta.all = all;
        meta.kind = RELEASE;
        standard_metadata.mcast_grp = multicast_group;
    }

    action replicate(bit<16> multicast_group) {
        standard_metadata.mcast_grp = multicast_group;
    }

    table reduction {
        key = {
            hdr.sync.group : exact @name("group");
            standard_metadata.ingress_port : exact @name("ingress_port");
        }
        actions = { arrive; turn; NoAction; }
        default_action = NoAction();
    }

    table distribution {
        key = {
            hdr.sync.group : exact @name("group");
            standard_metadata.ingress_port : exact @name("ingress_port");
        }
        actions = { replicate; NoAction; }
        default_action = NoAction();
    }

    apply {
        if (hdr.sync.kind == ARRIVAL) {
            if (reduction.apply().hit) {
                hdr.sync.data = hdr.sync.data | meta.data;
                if (meta.seen == meta.all) {
                    arrived.write((bit<32>)hdr.sync.group, 0);
                    combined.write((bit<32>)hdr.sync.group, 0);
                    hdr.sync.kind = meta.kind;
                } else {
                    arrived.write((bit<32>)hdr.sync.group, meta.seen);
                    combined.write((bit<32>)hdr.sync.group, hdr.sync.data);
                    mark_to_drop(standard_metadata);
                }
            } else {
                mark_to_drop(standard_metadata);
            }
        } else {
            if (hdr.sync.kind == RELEASE) {
                if (distribution.apply().hit) {
                    meta.kind = RELEASE;
                } else {
                    mark_to_drop(standard_metadata);
                }
            } else {
                mark_to_drop(standard_metadata);
            }
        }
    }
}

control verify_checksum_of(inout headers hdr, inout metadata meta) {
    apply { }
}

control compute_checksum_of(inout headers hdr, inout metadata meta) {
    apply { }
}

control egress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

control deparser(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.sync);
    }
}

V1Switch(frames(), verify_checksum_of(), barrier(), egress(), compute_checksum_of(), deparser()) main;
