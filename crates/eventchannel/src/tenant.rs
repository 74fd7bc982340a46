//! Tenants: accounts that share the resources of a channel, so that no tenant can take all of them.
//!
//! A tenant is a number that the caller chooses: a user, or a client by name. The resources of each tenant
//! are counted, and bounded by [`TenantLimits`]. [`TenantId::NONE`] has no bound of its own: only the
//! channel's limits bound it.
//!
//! Cost: a look-up when a topic, a supplier, a consumer, a subscription or a timer is added or removed;
//! nothing for an event.

use crate::error::ChannelError;
use crate::number_map::NumberMap;
use crate::oversize::OversizeAccount;
use unisono_time::Duration;

pub use crate::ids::TenantId;

/// Limits of one tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantLimits {
    pub topics: usize,
    pub suppliers: usize,
    pub consumers: usize,
    pub subscriptions: usize,
    /// The maximum number of subscriptions with a wildcard, a type, an exception or a filter. All of them may
    /// match the same topic; of the other subscriptions, only one of each consumer can.
    pub broad: usize,
    /// The maximum number of operations of all filters of the tenant: comparisons, calculations, values in
    /// lists, and excepted patterns. An event may have to be compared with all of them.
    pub operations: usize,
    /// The maximum total rate of all timers of the tenant, in rings per second.
    pub rings: usize,
    /// The maximum number of bytes of all waiting events for the tenant's consumers that are larger than
    /// their queue.
    pub oversize: usize,
}

impl Default for TenantLimits {
    /// The default limits of a tenant: for topics and parties, half of a channel's default limits. 32,768
    /// operations take the publisher of an event about 0.3 ms. 20,000 rings per second take 2 % of a
    /// processor, and are the rings of two timers with periods of 100 us. 4096 broad subscriptions are two
    /// for each consumer. Chosen by these arguments.
    fn default() -> Self {
        Self {
            topics: 32_768,
            suppliers: 2048,
            consumers: 2048,
            subscriptions: 32_768,
            broad: 4096,
            operations: 32_768,
            rings: 20_000,
            oversize: 64 << 20,
        }
    }
}

/// The resources that are counted for each tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TenantResource {
    Topics,
    Suppliers,
    Consumers,
    Subscriptions,
    Broad,
    Operations,
    Rings,
}

impl TenantResource {
    const COUNT: usize = 7;

    /// Returns the name and the limit.
    fn terms(self, limits: &TenantLimits) -> (&'static str, usize) {
        match self {
            Self::Topics => ("topics", limits.topics),
            Self::Suppliers => ("suppliers", limits.suppliers),
            Self::Consumers => ("consumers", limits.consumers),
            Self::Subscriptions => ("subscriptions", limits.subscriptions),
            Self::Broad => ("subscriptions with wildcards, types, exceptions or filters", limits.broad),
            Self::Operations => ("operations in filters", limits.operations),
            Self::Rings => ("rings of timers in a second", limits.rings),
        }
    }
}

/// The resources in use by each tenant.
#[derive(Debug)]
pub(crate) struct Tenants {
    limits: TenantLimits,
    /// Use by tenant; a tenant without resources has no entry.
    used: NumberMap<TenantId, [usize; TenantResource::COUNT]>,
    /// Oversize accounts of tenants with consumers.
    oversize: NumberMap<TenantId, OversizeAccount>,
}

impl Tenants {
    pub(crate) fn new(limits: TenantLimits) -> Self {
        Self { limits, used: NumberMap::default(), oversize: NumberMap::default() }
    }

    /// Returns the tenant's account of events that are larger than their queues.
    pub(crate) fn oversize(&mut self, tenant: TenantId) -> OversizeAccount {
        if tenant == TenantId::NONE {
            return OversizeAccount::new(usize::MAX);
        }
        // drops the accounts that are not in use any more
        self.oversize.retain(|of, account| *of == tenant || account.is_shared());
        let most = self.limits.oversize;
        let account = self.oversize.entry(tenant).or_insert_with(|| OversizeAccount::new(most));
        account.clone()
    }

    pub(crate) fn has_any(&self, tenant: TenantId) -> bool {
        self.used.contains_key(&tenant)
    }

    fn used(&self, tenant: TenantId, what: TenantResource) -> usize {
        self.used.get(&tenant).map_or(0, |used| used[what as usize])
    }

    /// Checks that a tenant may take `more` of a resource.
    ///
    /// # Errors
    /// The limit would be exceeded.
    pub(crate) fn check(
        &self,
        tenant: TenantId,
        what: TenantResource,
        more: usize,
    ) -> Result<(), ChannelError> {
        let (name, most) = what.terms(&self.limits);
        if tenant != TenantId::NONE && self.used(tenant, what).saturating_add(more) > most {
            return Err(ChannelError::TenantLimit { what: name, most });
        }
        Ok(())
    }

    /// Adds `more` to a tenant's use. The caller has checked the limit.
    pub(crate) fn take(&mut self, tenant: TenantId, what: TenantResource, more: usize) {
        if tenant != TenantId::NONE && more > 0 {
            self.used.entry(tenant).or_default()[what as usize] += more;
        }
    }

    pub(crate) fn release(&mut self, tenant: TenantId, what: TenantResource, count: usize) {
        if let Some(used) = self.used.get_mut(&tenant) {
            used[what as usize] = used[what as usize].saturating_sub(count);
            if *used == [0; TenantResource::COUNT] {
                self.used.remove(&tenant);
            }
        }
    }
}

/// Returns how often a timer rings in a second, rounded up.
pub(crate) fn rings(period: Duration) -> usize {
    usize::try_from(Duration::SECOND.as_nanos().div_ceil(period.as_nanos().max(1))).unwrap_or(usize::MAX)
}
