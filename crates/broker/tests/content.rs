//! Consumers learn the content type and the schema of payloads, whatever carries the event.

use crate::common::bench::{BrokerBench, Comes};
use crate::common::mqtt::{Raw, V5};
use crate::common::{event, with_broker};
use unisono_events_client::{
    Advertisement, EventDraft, FieldSet, InterestSpec, KeptHistory, PayloadForm, ReceivedEvent,
    SubscriptionSpec,
};

fn cbor() -> Advertisement {
    let form = PayloadForm { content_type: Some("application/cbor".into()), schema: Some("Reading".into()) };
    Advertisement { content: form, ..Advertisement::new("typed") }
}

fn form(event: &ReceivedEvent) -> (Option<&str>, Option<&str>) {
    (event.content_type(), event.schema())
}

const CBOR: (Option<&str>, Option<&str>) = (Some("application/cbor"), Some("Reading"));

#[test]
fn the_form_of_a_topics_payloads_comes_with_each_event_on_each_transport() {
    with_broker(|addresses| {
        for ((mut supplier, mut consumer), direct) in
            addresses.clients().into_iter().zip(addresses.clients()).zip([false, true, false])
        {
            consumer
                .subscribe(&SubscriptionSpec { direct, ..SubscriptionSpec::new("typed") })
                .expect("it fits");
            let topic = supplier.advertise(&cbor()).expect("a topic");
            supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
            assert_eq!(form(&event(&mut consumer)), CBOR);
            let own = FieldSet::new().with("content_type", "text/plain");
            supplier.publish(topic, &EventDraft::new(b"x").with_fields(own)).expect("it leaves");
            assert_eq!(form(&event(&mut consumer)), (Some("text/plain"), Some("Reading")), "its own counts");
            let mut loan = supplier.loan(topic, 1, &EventDraft::new(b"").keyed("k")).expect("memory");
            loan[0] = b'y';
            supplier.publish_loan(loan).expect("it leaves");
            let lent = event(&mut consumer);
            assert_eq!((form(&lent), &*lent.payload.bytes()), (CBOR, &b"y"[..]));
            supplier.try_publish(topic, &EventDraft::new(b"x")).expect("it is taken");
            assert_eq!(form(&event(&mut consumer)), CBOR);
        }
    });
}

#[test]
fn kept_events_have_their_form_and_filters_ask_for_it() {
    with_broker(|addresses| {
        let mut supplier = addresses.client();
        let topic =
            supplier.advertise(&Advertisement { history: KeptHistory::Last(2), ..cbor() }).expect("a topic");
        let json = FieldSet::new().with("content_type", "application/json");
        supplier.publish(topic, &EventDraft::new(b"{}").with_fields(json)).expect("it leaves");
        supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
        supplier.statistics().expect("the broker has both");
        let mut consumer = addresses.client();
        let filter = Some("content_type == \"application/cbor\"".to_owned());
        let interests = vec![InterestSpec { topics: "typed".into(), filter, ..InterestSpec::default() }];
        consumer.subscribe(&SubscriptionSpec { interests, ..SubscriptionSpec::default() }).expect("it fits");
        let kept = event(&mut consumer);
        assert_eq!((form(&kept), kept.retained), (CBOR, true));
    });
}

#[test]
fn the_content_type_of_mqtt_is_the_field_in_both_directions() {
    with_broker(|addresses| {
        let mut consumer = addresses.client();
        consumer.subscribe(&SubscriptionSpec::new("typed")).expect("it fits");
        let mut other = Raw::connect(addresses.mqtt, V5, "other");
        other.subscribe(1, "typed", 0);
        let mut client = Raw::connect(addresses.mqtt, V5, "one");
        for (content_type, is_utf_8, field) in [
            (Some("application/cbor"), false, Some("application/cbor")),
            (Some("text/csv"), true, Some("text/csv")),
            (None, true, Some("text/plain; charset=utf-8")),
            (None, false, None),
        ] {
            client.publish_typed("typed", content_type, is_utf_8);
            assert_eq!(event(&mut consumer).content_type(), field);
            let message = other.message();
            assert_eq!(
                (message.content_type.as_deref(), message.is_utf_8),
                (content_type, is_utf_8),
                "unchanged"
            );
        }
        let mut supplier = addresses.client();
        for (content_type, is_utf_8) in [
            ("application/cbor", false),
            ("application/json", true),
            ("text/csv; Charset=\"UTF-8\"", true),
            ("text/csv; charset=latin1", false),
        ] {
            let form = PayloadForm { content_type: Some(content_type.into()), schema: Some("Row".into()) };
            let topic = supplier
                .advertise(&Advertisement { content: form, ..Advertisement::new("typed") })
                .expect("a topic");
            supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
            let message = other.message();
            assert_eq!((message.content_type.as_deref(), message.is_utf_8), (Some(content_type), is_utf_8));
            assert_eq!(message.user("schema").as_deref(), Some("Row"));
            supplier.withdraw(topic).expect("it leaves");
        }
    });
}

#[test]
fn an_advertisement_on_the_wire_has_no_form() {
    let mut bench = BrokerBench::open();
    let program = bench.program(Comes::User(0), "raw");
    let refused = bench.advertise(program, 1, cbor()).expect_err("no field would say it");
    assert!(refused.contains("give each event the fields content_type and schema"), "{refused}");
}
