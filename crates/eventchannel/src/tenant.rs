//! Tenants: who shares what a channel takes on, so that one of them never has all of it.
//!
//! A tenant is a number of the caller's: a user, or a client of a name. What each has is counted, and bounded
//! by [`TenantLimits`]. [`TenantId::NONE`] is nobody's: only the channel's own limits bound it.
//!
//! Cost: a look-up when a topic, a supplier, a consumer, a subscription or a timer comes or goes; nothing for
//! an event.

use crate::error::ChannelError;
use crate::number_map::NumberMap;
use crate::oversize::{OversizeAccount, OversizeShare};
use unisono_linux::clock::Nanos;

/// A tenant, by the caller's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TenantId(pub u32);

impl TenantId {
    /// What counts against no limit of a tenant, only against those of the channel.
    pub const NONE: Self = Self(0);
}

/// How much of a channel one tenant may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantLimits {
    pub topics: usize,
    pub suppliers: usize,
    pub consumers: usize,
    pub subscriptions: usize,
    /// Operations of all its filters: comparisons, calculations, values in lists. An event may have to be
    /// compared with all of them.
    pub operations: usize,
    /// Times in a second that all its timers ring together.
    pub rings: usize,
    /// Bytes of all events that wait for its consumers and are each larger than the queue that they wait in.
    pub oversize: usize,
}

impl Default for TenantLimits {
    /// Half of what a channel has by default. 32,768 operations take the publisher of an event about 0.3 ms;
    /// 20,000 rings take 2 % of a processor, and are two timers of 100 us. Chosen by these arguments.
    fn default() -> Self {
        Self {
            topics: 32_768,
            suppliers: 2048,
            consumers: 2048,
            subscriptions: 32_768,
            operations: 32_768,
            rings: 20_000,
            oversize: 64 << 20,
        }
    }
}

/// What is counted of each tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TenantResource {
    Topics,
    Suppliers,
    Consumers,
    Subscriptions,
    Operations,
    Rings,
}

impl TenantResource {
    const COUNT: usize = 6;

    fn name(self) -> &'static str {
        match self {
            Self::Topics => "topics",
            Self::Suppliers => "suppliers",
            Self::Consumers => "consumers",
            Self::Subscriptions => "subscriptions",
            Self::Operations => "operations in filters",
            Self::Rings => "rings of timers in a second",
        }
    }

    fn limit(self, limits: &TenantLimits) -> usize {
        match self {
            Self::Topics => limits.topics,
            Self::Suppliers => limits.suppliers,
            Self::Consumers => limits.consumers,
            Self::Subscriptions => limits.subscriptions,
            Self::Operations => limits.operations,
            Self::Rings => limits.rings,
        }
    }
}

/// What each tenant has.
#[derive(Debug)]
pub(crate) struct Tenants {
    limits: TenantLimits,
    /// A tenant that has nothing is not here.
    used: NumberMap<TenantId, [usize; TenantResource::COUNT]>,
    /// Of tenants with consumers.
    oversize: NumberMap<TenantId, OversizeAccount>,
}

impl Tenants {
    pub(crate) fn new(limits: TenantLimits) -> Self {
        Self { limits, used: NumberMap::default(), oversize: NumberMap::default() }
    }

    /// A part of what a tenant may have of events that are larger than their queues.
    pub(crate) fn oversize(&mut self, tenant: TenantId) -> OversizeShare {
        if tenant == TenantId::NONE {
            return OversizeShare::new(OversizeAccount::new(usize::MAX));
        }
        // those that nobody has a part of
        self.oversize.retain(|of, account| *of == tenant || account.is_shared());
        let most = self.limits.oversize;
        let account = self.oversize.entry(tenant).or_insert_with(|| OversizeAccount::new(most));
        OversizeShare::new(account.clone())
    }

    pub(crate) fn has_any(&self, tenant: TenantId) -> bool {
        self.used.contains_key(&tenant)
    }

    fn used(&self, tenant: TenantId, what: TenantResource) -> usize {
        self.used.get(&tenant).map_or(0, |used| used[what as usize])
    }

    /// Whether a tenant may have so many more.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check(
        &self,
        tenant: TenantId,
        what: TenantResource,
        more: usize,
    ) -> Result<(), ChannelError> {
        let most = what.limit(&self.limits);
        if tenant != TenantId::NONE && self.used(tenant, what).saturating_add(more) > most {
            return Err(ChannelError::TenantLimit { what: what.name(), most });
        }
        Ok(())
    }

    /// A tenant has so many more, as was checked before.
    pub(crate) fn take(&mut self, tenant: TenantId, what: TenantResource, more: usize) {
        if tenant != TenantId::NONE && more > 0 {
            self.used.entry(tenant).or_default()[what as usize] += more;
        }
    }

    pub(crate) fn give_back(&mut self, tenant: TenantId, what: TenantResource, count: usize) {
        if let Some(used) = self.used.get_mut(&tenant) {
            used[what as usize] = used[what as usize].saturating_sub(count);
            if *used == [0; TenantResource::COUNT] {
                self.used.remove(&tenant);
            }
        }
    }
}

/// How often a timer rings in a second, rounded up.
pub(crate) fn rings(period: Nanos) -> usize {
    usize::try_from(Nanos::SECOND.0.div_ceil(period.0.max(1))).unwrap_or(usize::MAX)
}
