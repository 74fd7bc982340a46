//! records to one self-contained HTML file.
