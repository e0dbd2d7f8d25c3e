//! Which lines go: what the planner answers, and what of it may be done.

use std::ops::Range;

/// Lines of a planner's answer, as it counts them: from 1, both ends included, in any order.
pub type Record = (u64, u64);

/// Line ranges that may be deleted: from 0, end excluded, in order, apart from each other, within the region, and without a
/// protected line. Made by [`Deletions::validate`] only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletions(Vec<Range<usize>>);

impl Deletions {
    /// Puts records right: ends that are swapped are swapped back, what lies outside `total` lines is cut off, what meets is
    /// joined, and protected lines are taken out.
    pub fn validate(records: &[Record], total: usize, protected: &[Range<usize>]) -> Deletions {
        let mut ranges: Vec<Range<usize>> = records
            .iter()
            .map(|(a, b)| (*a.min(b), *a.max(b)))
            .map(|(first, last)| first.max(1) as usize - 1..last.min(total as u64) as usize)
            .filter(|range| range.start < range.end)
            .collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        Deletions(without(joined, protected))
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }

    /// There is nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `ranges` without `holes`; both are in order and apart.
fn without(ranges: Vec<Range<usize>>, holes: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut out = Vec::with_capacity(ranges.len());
    let mut holes = holes.iter().peekable();
    for range in ranges {
        let mut start = range.start;
        while let Some(hole) = holes.peek() {
            if hole.end <= start {
                holes.next();
                continue;
            }
            if hole.start >= range.end {
                break;
            }
            if hole.start > start {
                out.push(start..hole.start);
            }
            start = hole.end;
            if hole.end > range.end {
                // It may reach into the next range as well.
                break;
            }
        }
        if start < range.end {
            out.push(start..range.end);
        }
    }
    out
}

/// Reads a whole answer: nothing but lines `first,last`, the last of them with or without LF. `None`: it says anything
/// else, and then none of it is trusted (an answer that is almost right names the wrong lines).
pub fn parse(answer: &str) -> Option<Vec<Record>> {
    let body = answer.strip_suffix('\n').unwrap_or(answer);
    body.split('\n').map(record).collect()
}

/// Reads an answer that the output limit cut off: whole lines only, since the rest of the last number is missing. `None`:
/// one of them is no record.
pub fn parse_cut(answer: &str) -> Option<Vec<Record>> {
    match answer.rfind('\n') {
        Some(end) => answer[..end].split('\n').map(record).collect(),
        None => Some(Vec::new()),
    }
}

fn record(line: &str) -> Option<Record> {
    let (first, last) = line.split_once(',')?;
    Some((number(first)?, number(last)?))
}

/// Plain decimal digits without leading zeros. A number beyond any line is as good as the last one.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = text == "0" || !text.starts_with('0');
    (plain && canonical).then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;

    #[test]
    fn whole_answers() {
        for (answer, expected) in [
            ("1,2", Some(vec![(1, 2)])),
            ("1,2\n", Some(vec![(1, 2)])),
            ("3,1\n5,6", Some(vec![(3, 1), (5, 6)])),
            ("0,0", Some(vec![(0, 0)])),
            ("99999999999999999999999,1", Some(vec![(u64::MAX, 1)])),
            ("1,2\n\n", None),
            ("\n1,2", None),
            ("01,2", None),
            ("1, 2", None),
            ("1,2,3", None),
            ("1", None),
            ("", None),
            ("+1,2", None),
            ("-1,2", None),
            ("1,2\r\n", None),
            ("١,٢", None),
            ("```\n1,2\n```", None),
            ("Delete these:\n1,2", None),
        ] {
            assert_eq!(parse(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn answers_cut_off() {
        for (answer, expected) in [
            ("3,1\n5,6", Some(vec![(3, 1)])),
            ("3,1\n5,6\n", Some(vec![(3, 1), (5, 6)])),
            ("3,1\n5,", Some(vec![(3, 1)])),
            ("3,1", Some(vec![])),
            ("", Some(vec![])),
            ("hm\n5,6", None),
            ("\n5,6", None),
            ("3,1\nand 5,6\n7", None),
        ] {
            assert_eq!(parse_cut(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn records_are_put_right() {
        let validate =
            |records: &[Record], protected: &[Range<usize>]| Deletions::validate(records, 12, protected).0;
        let guarded = [7..10];
        assert_eq!(validate(&[(2, 3), (11, 7)], &guarded), [1..3, 6..7, 10..11]);
        assert_eq!(validate(&[(1, 99)], &guarded), [0..7, 10..12]);
        assert_eq!(validate(&[(0, 0)], &[]), []);
        assert_eq!(validate(&[(13, 20)], &[]), []);
        assert_eq!(validate(&[(5, 6), (1, 2), (3, 4)], &[]), [0..6]);
        assert_eq!(validate(&[(8, 10)], &guarded), []);
        assert_eq!(validate(&[(1, 12)], &[0..1, 3..4, 11..12]), [1..3, 4..11]);
        assert_eq!(validate(&[(1, 4), (6, 9)], &[2..7]), [0..2, 7..9]);
        assert_eq!(validate(&[(u64::MAX, 0)], &[]), [0..12]);
    }
}
