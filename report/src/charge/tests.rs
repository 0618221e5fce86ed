//! Hand-made chains.
