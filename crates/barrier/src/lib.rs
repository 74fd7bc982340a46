//! thread and process barriers behind one trait.
