//! Modifiers: the letters after an event, for the modes in which it counts and for its precision.

use bprec_format::AttrFlags;

use super::{EXCLUDE_MODES, EventSpec, Result, wrong};

/// Modifiers of an event: `ukhIGHDe`, one to three `p`, or `P`.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Modifiers {
    flags: AttrFlags,
    precise: u8,
    precise_as_possible: bool,
}

impl Modifiers {
    /// Parses `text`, the modifiers of the event `item`.
    pub(super) fn parse(item: &str, text: &str) -> Result<Modifiers> {
        let mut result = Modifiers::default();
        let mut wanted = AttrFlags::default();
        let mut flags = AttrFlags::default();
        for letter in text.chars() {
            match letter {
                'u' => wanted = wanted.with(AttrFlags::EXCLUDE_USER),
                'k' => wanted = wanted.with(AttrFlags::EXCLUDE_KERNEL),
                'h' => wanted = wanted.with(AttrFlags::EXCLUDE_HV),
                'G' => wanted = wanted.with(AttrFlags::EXCLUDE_GUEST),
                'H' => wanted = wanted.with(AttrFlags::EXCLUDE_HOST),
                'I' => flags = flags.with(AttrFlags::EXCLUDE_IDLE),
                'D' => flags = flags.with(AttrFlags::PINNED),
                'e' => flags = flags.with(AttrFlags::EXCLUSIVE),
                'p' => result.precise += 1,
                'P' => (result.precise, result.precise_as_possible) = (3, true),
                _ => {
                    let problem = format!(
                        "`{letter}` is not a modifier; the modifiers are u, k, h, p, pp, ppp, P, G, H, I, D and e"
                    );
                    return Err(wrong(item, problem));
                }
            }
            if result.precise > 3 {
                return Err(wrong(item, "the highest precision is ppp"));
            }
        }
        let guests = AttrFlags::EXCLUDE_GUEST.with(AttrFlags::EXCLUDE_HOST);
        // Naming a mode excludes the other modes; without a named mode all modes count.
        for family in [EXCLUDE_MODES, guests] {
            if wanted.0 & family.0 != 0 {
                flags = flags.with(family.without(wanted));
            }
        }
        // Hardware PMU drivers refuse precise sampling of guests.
        if result.precise > 0 && !result.precise_as_possible && wanted.0 & guests.0 == 0 {
            flags = flags.with(AttrFlags::EXCLUDE_GUEST);
        }
        result.flags = flags;
        Ok(result)
    }

    pub(super) fn apply(&self, spec: &mut EventSpec) {
        spec.attr.flags = spec.attr.flags.with(self.flags);
        if self.precise > 0 {
            spec.attr.flags = spec.attr.flags.with_precise_ip(self.precise);
        }
        spec.precise_as_possible = self.precise_as_possible;
    }
}
