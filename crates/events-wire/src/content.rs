//! The form of payloads: their content type, and the schema that describes them.
//!
//! Both are fields of the events, so that they stay with the event in kept events, the log, direct rings,
//! joined brokers, and programs that do not know these fields; filters can test them. A supplier's library
//! adds them to each event of the topic, unless the event has its own.
//!
//! Cost: their bytes in each event, about 45 for `application/cbor`. Leave them out if consumers know the
//! form from elsewhere.
//!
//! Reference: content types are media types (RFC 6838), as in MQTT 5.0, 3.3.2.3.9.

use serde::{Deserialize, Serialize};
use unisono_eventchannel::FieldSet;

/// The field with the content type of an event's payload.
pub const CONTENT_TYPE: &str = "content_type";
/// The field with the name of the schema of an event's payload.
pub const SCHEMA: &str = "schema";

/// The form of a topic's payloads.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PayloadForm {
    /// A media type, such as `application/cbor`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The name of a type in that encoding, such as a message of protobuf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
}

impl PayloadForm {
    /// Returns whether neither a content type nor a schema is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content_type.is_none() && self.schema.is_none()
    }

    /// Adds this form to the fields of an event, and returns them. A field that the event already has is not
    /// changed.
    #[must_use]
    pub fn complete(&self, mut fields: FieldSet) -> FieldSet {
        for (name, value) in [(CONTENT_TYPE, &self.content_type), (SCHEMA, &self.schema)] {
            if let Some(value) = value
                && fields.field(name).is_none()
            {
                fields.set(name, value.as_str());
            }
        }
        fields
    }
}
