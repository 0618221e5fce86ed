//! One JSON document; `docs/json.md` says what each member means, and when the version changes.

mod exact;
mod maps;

pub(super) use exact::{counting, events, exact_members};
pub(crate) use maps::write as write_maps;

use super::rows::choose;
use super::text::share;
use crate::{
    BlindedEvent, BpfSampler, Charges, Count, EventReport, Missed, Origin, Program, Recorded, Report, Row, SplitRow,
    Unit,
};
use bprec_format::state::Owner;
use std::io::{self, Write};

/// Version of the document: counted up when a member goes away or changes its meaning.
pub(super) const VERSION: u64 = 1;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Json::new(out);
    json.object(|json| {
        json.text("format", "bprec by-prog")?;
        json.number("version", VERSION)?;
        json.member("recording", |json| recording(json, &report.recorded))?;
        match report.split {
            Some(split) => json.text("by", split.name())?,
            None => json.null("by")?,
        }
        counting(json, "counting", report.counting.as_ref())?;
        json.list("programs", &report.programs, |json, it| program(json, report, it))?;
        json.list("events", &report.events, |json, event| self::event(json, report, event))?;
        json.list("blinded_events", &report.blinded, |json, it| blinded(json, report, it))?;
        json.list("missed", &report.missed, missed)?;
        json.list("problems", &report.problems, |json, problem| json.string(problem))
    })?;
    json.end()
}

fn recording(json: &mut Json<'_>, recorded: &Recorded) -> io::Result<()> {
    json.object(|json| {
        json.optional_text("hostname", recorded.hostname.as_deref())?;
        json.optional_text("os_release", recorded.os_release.as_deref())?;
        json.optional_text("arch", recorded.arch.as_deref())?;
        json.optional("cpus", recorded.cpus.map(u64::from))?;
        json.number("start_ns", recorded.start_ns)?;
        json.optional("realtime_ns", recorded.realtime_ns)?;
        json.optional("elapsed_ns", recorded.elapsed_ns)?;
        json.optional_text("target", recorded.target.as_deref())?;
        json.optional_text("event_note", recorded.event_note.as_deref())?;
        json.optional_text("counters", recorded.counters.as_deref())?;
        json.optional_text("counters_note", recorded.counters_note.as_deref())?;
        json.number("lost_records", recorded.lost_records)?;
        json.boolean("loss_not_counted", recorded.loss_not_counted)?;
        json.list("cpus_not_sampled", &recorded.cpus_not_sampled, |json, it| {
            json.object(|json| {
                json.number("cpu", it.cpu.into())?;
                json.number("from_ns", it.time_ns)?;
                json.boolean("came_online", it.came_online)
            })
        })?;
        json.boolean("unfinished", recorded.unfinished)?;
        json.boolean("kernel_symbols", recorded.has_kernel_symbols)?;
        match &recorded.cost {
            None => json.null("cost"),
            Some(cost) => json.member("cost", |json| {
                json.object(|json| {
                    json.number("user_ns", cost.user_ns)?;
                    json.number("system_ns", cost.system_ns)?;
                    json.number("max_rss_bytes", cost.max_rss_bytes)?;
                    json.number("written_bytes", cost.written_bytes)?;
                    json.number("wakeups", cost.wakeups)
                })
            }),
        }
    })
}

fn program(json: &mut Json<'_>, report: &Report, program: &Program) -> io::Result<()> {
    json.object(|json| {
        json.optional("id", program.id.map(u64::from))?;
        json.optional("load_time_ns", program.load_time_ns)?;
        json.text("name", &program.name)?;
        json.optional_text("type", program.prog_type.map(|prog_type| prog_type.to_string()).as_deref())?;
        json.optional_text("tag", program.tag.map(|tag| tag.to_string()).as_deref())?;
        json.list("functions", &program.functions, |json, name| json.string(name))?;
        json.list("attached", &program.attachments, |json, attachment| json.string(attachment))?;
        json.list("owners", &program.owners, owner)?;
        json.list("pins", &program.pins, |json, pin| json.string(pin))?;
        json.optional("uid", program.uid.map(u64::from))?;
        json.list("metadata", &program.metadata, |json, (key, value)| {
            json.object(|json| {
                json.text("key", key)?;
                json.text("value", value)
            })
        })?;
        moment(json, "loaded", program.loaded)?;
        moment(json, "unloaded", program.unloaded)?;
        json.boolean("interpreted", program.interpreted)?;
        json.boolean("captured", program.captured)?;
        match &program.runs {
            Err(unknown) => {
                json.null("runs")?;
                json.text("runs_unknown", &unknown.0)?;
            }
            Ok(runs) => json.member("runs", |json| {
                json.object(|json| {
                    json.number("count", runs.count)?;
                    json.number("time_ns", runs.time_ns)?;
                    json.fraction("ns_per_run", (runs.count > 0).then(|| runs.time_ns as f64 / runs.count as f64))?;
                    json.optional("misses", runs.misses)
                })
            })?,
        }
        match &report.counting {
            Some(counting) => exact::program(json, program, &counting.events),
            None => Ok(()),
        }
    })
}

fn blinded(json: &mut Json<'_>, report: &Report, blinded: &BlindedEvent) -> io::Result<()> {
    json.object(|json| {
        json.text("event", &blinded.event)?;
        let program = report.programs.get(blinded.program);
        json.optional("program_id", program.and_then(|program| program.id).map(u64::from))?;
        json.optional_text("program", program.map(|program| program.name.as_str()))?;
        json.boolean("own", blinded.own)
    })
}

fn owner(json: &mut Json<'_>, owner: &Owner) -> io::Result<()> {
    json.object(|json| {
        json.number("pid", owner.pid.into())?;
        json.text("comm", &String::from_utf8_lossy(&owner.comm))?;
        json.number("uid", owner.uid.into())?;
        json.text("cgroup", &String::from_utf8_lossy(&owner.cgroup))
    })
}

/// ns since the recording's start: not before, and not after.
fn moment(json: &mut Json<'_>, name: &str, origin: Option<Origin>) -> io::Result<()> {
    let (after, before) = match origin {
        None => return json.null(name),
        Some(Origin::At(time)) => (time, time),
        Some(Origin::Between(after, before)) => (after, before),
    };
    json.member(name, |json| {
        json.object(|json| {
            json.member("after_ns", |json| json.raw(&after.to_string()))?;
            json.member("before_ns", |json| json.raw(&before.to_string()))
        })
    })
}

fn event(json: &mut Json<'_>, report: &Report, event: &EventReport) -> io::Result<()> {
    let chosen = choose(report, event, false);
    json.object(|json| {
        json.text("name", &event.name)?;
        json.text(
            "unit",
            match event.unit {
                Unit::Nanoseconds => "ns",
                Unit::Events => "events",
            },
        )?;
        json.count("samples", event.samples)?;
        json.optional_count("idle", event.idle)?;
        json.optional("machine", event.machine)?;
        json.optional("lost", event.lost)?;
        json.number("filtered", event.filtered)?;
        json.number("throttled", event.throttled)?;
        json.boolean("callchains", event.has_chains)?;
        json.boolean("timer", event.is_timer)?;
        match &event.aggregated {
            None => json.null("aggregated")?,
            Some(aggregated) => json.member("aggregated", |json| {
                json.object(|json| {
                    json.number("entries", aggregated.entries.into())?;
                    json.number("interval_ns", aggregated.interval_ns)?;
                    json.count("overflow", aggregated.overflow)?;
                    json.optional_count("blind_spot", aggregated.blind_spot)
                })
            })?,
        }
        json.list("rows", &chosen.shown, |json, row| self::row(json, report, event, row))?;
        json.member("others", |json| {
            json.object(|json| {
                json.number("programs", chosen.rest as u64)?;
                charges(json, event, &chosen.rest_charges, false)
            })
        })?;
        json.number("quiet_programs", chosen.quiet as u64)?;
        json.count("entry_unattributed", event.entry)?;
        json.count("interpreted", event.interpreted)?;
        json.optional_count("unresolved", event.unresolved)?;
        json.member("total", |json| json.object(|json| shares(json, event, event.bpf())))?;
        match &event.bpf_sampler {
            None => json.null("bpf_sampler")?,
            Some(sampler) => json.member("bpf_sampler", |json| bpf_sampler(json, sampler))?,
        }
        json.list("hot", &event.hot, |json, hot| {
            json.object(|json| {
                json.text("name", &hot.name)?;
                json.text("object", &hot.object)?;
                json.number("samples", hot.count.samples)?;
                json.number("weight", hot.count.weight)
            })
        })
    })
}

fn bpf_sampler(json: &mut Json<'_>, sampler: &BpfSampler) -> io::Result<()> {
    json.object(|json| {
        json.optional_text("carrier", sampler.carrier.as_deref())?;
        json.optional("carriers", sampler.carriers.map(u64::from))?;
        json.optional("frequency", sampler.rate.filter(|_| sampler.is_frequency))?;
        json.optional("period", sampler.rate.filter(|_| !sampler.is_frequency))?;
        let counts = sampler.counts;
        json.optional("runs", counts.map(|counts| counts.runs))?;
        json.optional("written", counts.map(|counts| counts.written))?;
        json.optional("full", counts.map(|counts| counts.full))?;
        json.optional("failed", counts.map(|counts| counts.failed))?;
        match &sampler.blind_spot {
            None => json.null("blind_spot"),
            Some(blind) => json.member("blind_spot", |json| {
                json.object(|json| {
                    json.text("event", &blind.event)?;
                    json.number("samples", blind.inside.samples)?;
                    json.number("weight", blind.inside.weight)?;
                    json.count("of", blind.of)?;
                    json.fraction("percent", share(blind.inside.samples, Some(blind.of.samples)))
                })
            }),
        }
    })
}

fn row(json: &mut Json<'_>, report: &Report, event: &EventReport, row: &Row) -> io::Result<()> {
    let program = &report.programs[row.program];
    json.object(|json| {
        json.number("program", row.program as u64)?;
        json.optional("id", program.id.map(u64::from))?;
        json.text("name", &program.name)?;
        json.optional_text("blind", row.blind.as_ref().map(|unknown| unknown.0.as_str()))?;
        json.optional_text("disagreement", row.disagreement.as_deref())?;
        charges(json, event, &row.charges, true)?;
        if report.split.is_some() {
            json.list("parts", &row.parts, |json, part: &SplitRow| {
                json.object(|json| {
                    json.text("name", &part.name)?;
                    charges(json, event, &part.charges, part.has_total)
                })
            })?;
        }
        Ok(())
    })
}

/// The members of a line of the ledger.
fn charges(json: &mut Json<'_>, event: &EventReport, charges: &Charges, has_total: bool) -> io::Result<()> {
    shares(json, event, charges.sum())?;
    json.count("self", charges.own)?;
    json.optional_count("helper", event.has_chains.then_some(charges.helper))?;
    json.optional_count("entry", event.has_chains.then_some(charges.entry))?;
    json.optional_count("inclusive", (event.has_chains && has_total).then_some(charges.total))
}

/// What is charged, and its shares.
fn shares(json: &mut Json<'_>, event: &EventReport, count: Count) -> io::Result<()> {
    let busy = event.idle.map(|idle| event.samples.weight.saturating_sub(idle.weight));
    json.number("samples", count.samples)?;
    json.number("weight", count.weight)?;
    json.fraction("machine_percent", share(count.weight, event.machine))?;
    json.fraction("busy_percent", share(count.weight, busy))?;
    json.fraction("bpf_percent", share(count.weight, Some(event.bpf().weight)))?;
    json.fraction("samples_percent", share(count.weight, Some(event.samples.weight)))
}

fn missed(json: &mut Json<'_>, missed: &Missed) -> io::Result<()> {
    json.object(|json| {
        json.number("id", missed.id.into())?;
        json.optional_text("tag", missed.tag.map(|tag| tag.to_string()).as_deref())?;
        match missed.time_ns {
            Some(time) => json.member("time_ns", |json| json.raw(&time.to_string()))?,
            None => json.null("time_ns")?,
        }
        json.text("reason", &missed.reason)
    })
}

/// Writes values, indented or on one line, members in the order of the calls.
pub(super) struct Json<'w> {
    out: &'w mut dyn Write,
    /// How deep what is open is nested; `None` on one line.
    depth: Option<usize>,
    /// Nothing has been written into the object or list that is open.
    empty: bool,
}

impl<'w> Json<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> Json<'w> {
        Json { out, depth: Some(0), empty: true }
    }

    /// All of the document on one line.
    pub(super) fn on_one_line(out: &'w mut dyn Write) -> Json<'w> {
        Json { out, depth: None, empty: true }
    }

    /// Ends the document.
    pub(super) fn end(self) -> io::Result<()> {
        writeln!(self.out)
    }

    fn raw(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    pub(super) fn string(&mut self, text: &str) -> io::Result<()> {
        self.raw("\"")?;
        for c in text.chars() {
            match c {
                '"' => self.raw("\\\"")?,
                '\\' => self.raw("\\\\")?,
                '\n' => self.raw("\\n")?,
                '\t' => self.raw("\\t")?,
                // Control characters, and for terminals also those beyond ASCII.
                c if c.is_control() => write!(self.out, "\\u{:04x}", c as u32)?,
                c => write!(self.out, "{c}")?,
            }
        }
        self.raw("\"")
    }

    /// Starts the next element of what is open.
    fn next(&mut self) -> io::Result<()> {
        let separator = if self.empty { "" } else { "," };
        let is_first = std::mem::replace(&mut self.empty, false);
        match self.depth {
            Some(depth) => write!(self.out, "{separator}\n{:1$}", "", depth * 2),
            None if is_first => Ok(()),
            None => self.raw(", "),
        }
    }

    fn nested(&mut self, ends: [&str; 2], content: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.raw(ends[0])?;
        let depth = self.depth;
        self.depth = depth.map(|depth| depth + 1);
        self.empty = true;
        content(self)?;
        self.depth = depth;
        if let (Some(depth), false) = (depth, self.empty) {
            write!(self.out, "\n{:1$}", "", depth * 2)?;
        }
        self.empty = false;
        self.raw(ends[1])
    }

    pub(super) fn object(&mut self, members: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.nested(["{", "}"], members)
    }

    pub(super) fn member(&mut self, name: &str, value: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.next()?;
        self.string(name)?;
        self.raw(": ")?;
        value(self)
    }

    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.member(name, |json| {
            json.nested(["[", "]"], |json| {
                items.iter().try_for_each(|item| {
                    json.next()?;
                    write(json, item)
                })
            })
        })
    }

    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.member(name, |json| json.string(text))
    }

    pub(super) fn number(&mut self, name: &str, number: u64) -> io::Result<()> {
        self.member(name, |json| write!(json.out, "{number}"))
    }

    pub(super) fn signed(&mut self, name: &str, number: i64) -> io::Result<()> {
        self.member(name, |json| write!(json.out, "{number}"))
    }

    pub(super) fn boolean(&mut self, name: &str, value: bool) -> io::Result<()> {
        self.member(name, |json| write!(json.out, "{value}"))
    }

    pub(super) fn null(&mut self, name: &str) -> io::Result<()> {
        self.member(name, |json| json.raw("null"))
    }

    pub(super) fn optional(&mut self, name: &str, number: Option<u64>) -> io::Result<()> {
        match number {
            Some(number) => self.number(name, number),
            None => self.null(name),
        }
    }

    pub(super) fn optional_text(&mut self, name: &str, text: Option<&str>) -> io::Result<()> {
        match text {
            Some(text) => self.text(name, text),
            None => self.null(name),
        }
    }

    /// The shortest decimal that is this number.
    pub(super) fn fraction(&mut self, name: &str, value: Option<f64>) -> io::Result<()> {
        match value {
            Some(value) => self.member(name, |json| write!(json.out, "{value}")),
            None => self.null(name),
        }
    }

    fn count(&mut self, name: &str, count: Count) -> io::Result<()> {
        self.member(name, |json| write!(json.out, "{{\"samples\": {}, \"weight\": {}}}", count.samples, count.weight))
    }

    fn optional_count(&mut self, name: &str, count: Option<Count>) -> io::Result<()> {
        match count {
            Some(count) => self.count(name, count),
            None => self.null(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json_has_them() {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        json.object(|json| {
            json.text("a\"b", "\u{1b}[0m\\ \u{9b}é\n")?;
            json.list("none", &[0u8; 0], |_, _| Ok(()))?;
            json.list("two", &[1u64, 2], |json, n| json.object(|json| json.number("n", *n)))?;
            json.fraction("third", Some(1.0 / 3.0))?;
            json.fraction("unknown", None)?;
            json.count("count", Count { samples: 1, weight: 2 })
        })
        .unwrap();
        let expected = r#"{
  "a\"b": "\u001b[0m\\ \u009bé\n",
  "none": [],
  "two": [
    {
      "n": 1
    },
    {
      "n": 2
    }
  ],
  "third": 0.3333333333333333,
  "unknown": null,
  "count": {"samples": 1, "weight": 2}
}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        let mut json = Json::on_one_line(&mut out);
        json.object(|json| {
            json.list("two", &[1u64, 2], |json, n| json.object(|json| json.number("n", *n)))?;
            json.null("none")
        })
        .unwrap();
        json.end().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "{\"two\": [{\"n\": 1}, {\"n\": 2}], \"none\": null}\n");
    }
}
