//! The job of this process, from the environment that its launcher set: `unisono run`, or Slurm's `srun`.
//!
//! Slurm passes the number of this task, the number of tasks, the tasks of this node, and the step's nodes.
//! It passes no secret: the job's key comes from `UNISONO_JOB`. `srun` passes that variable on to its tasks,
//! and only processes of the same user can read it there. Rank 0 is on the first node of the step's list. It
//! listens at a port computed from the numbers of job and step, so that two steps on one node seldom choose
//! the same port; `UNISONO_ROOT` sets another address. When not to use: in a batch script's own step, because
//! it is no task of `srun`. Reference: srun(1), "Output environment variables".

use super::Error;
use super::membership::{Bootstrap, JobMembership, environment, incomplete};

/// Ports outside Linux's default range of ephemeral ports: `ip_local_port_range` begins at 32768.
const PORTS: std::ops::Range<u64> = 20_000..32_000;

/// Reads the membership that the launcher, `unisono run` or Slurm's `srun`, has set. `variable` reads an
/// environment variable. Returns `None` if no launcher started this process.
pub(crate) fn from_launcher(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<(JobMembership, Option<Bootstrap>)>, Error> {
    use environment::{HERE, KEY, RANK, ROOT, SIZE};
    let Some(rank) = variable(RANK) else {
        return slurm(&variable);
    };
    let (Some(size), Some(key)) = (variable(SIZE), variable(KEY)) else { return Err(incomplete()) };
    let place = JobMembership::parse(&rank, &size, &key)?;
    let bootstrap = match (variable(ROOT), variable(HERE)) {
        (Some(root), Some(here)) => Some(Bootstrap::parse(root, &here, &place)?),
        (None, None) => None,
        _ => return Err(Error::Job(format!("{ROOT} and {HERE} belong together"))),
    };
    Ok(Some((place, bootstrap)))
}

/// Reads the membership that Slurm has set. Returns `None` if this process is no task of a step with several
/// tasks.
fn slurm(
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<(JobMembership, Option<Bootstrap>)>, Error> {
    let (Some(rank), Some(size)) = (
        variable("SLURM_PROCID"),
        variable("SLURM_STEP_NUM_TASKS").or_else(|| variable("SLURM_NTASKS")),
    ) else {
        return if variable(environment::KEY).or_else(|| variable(environment::SIZE)).is_some() {
            Err(incomplete())
        } else {
            Ok(None)
        };
    };
    let Some(key) = variable(environment::KEY) else {
        // In a batch script's own step Slurm sets a task's number, but no number of tasks of the step.
        return if variable("SLURM_STEP_NUM_TASKS").is_none_or(|size| size == "1") {
            Ok(None)
        } else {
            let problem = format!(
                "this is task {rank} of {size} of a Slurm step, and {} is not set; \
                 before srun write: export {}=$(openssl rand -hex 16)",
                environment::KEY,
                environment::KEY
            );
            Err(Error::Job(problem))
        };
    };
    let place = JobMembership::parse(&rank, &size, &key)?;
    let missing =
        |name: &str| Error::Job(format!("srun did not set {name}; set {} as well", environment::ROOT));
    let here = variable("SLURM_GTIDS")
        .or_else(|| variable(environment::HERE))
        .ok_or_else(|| missing("SLURM_GTIDS"))?;
    let root = match variable(environment::ROOT) {
        Some(root) => root,
        None => {
            let nodes = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_NODELIST"));
            let nodes = nodes.ok_or_else(|| missing("SLURM_STEP_NODELIST"))?;
            let number = |name: &str| variable(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let (job, step) = (number("SLURM_JOB_ID"), number("SLURM_STEP_ID"));
            let port = PORTS.start + (job.wrapping_mul(97).wrapping_add(step)) % (PORTS.end - PORTS.start);
            format!("{}:{port}", first_node(&nodes))
        }
    };
    Ok(Some((place.clone(), Some(Bootstrap::parse(root, &here, &place)?))))
}

/// Returns the first name of a list of nodes in Slurm's notation: `a,b`, `node[01-04,7],login`,
/// `r[1-2]n[3-4]`.
fn first_node(nodes: &str) -> String {
    let mut name = String::new();
    let mut rest = nodes;
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        name.push_str(&rest[..end]);
        let Some(range) = rest[end..].strip_prefix('[') else { return name };
        let close = range.find(']').unwrap_or(range.len());
        name.push_str(range[..close].split([',', '-']).next().unwrap_or_default());
        rest = range.get(close + 1..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rank;

    fn launched_with(
        variables: &[(&str, &str)],
    ) -> Result<Option<(JobMembership, Option<Bootstrap>)>, Error> {
        from_launcher(|name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const KEY: &str = "00112233445566778899aabbccddeeff";
    const STEP: [(&str, &str); 6] = [
        ("SLURM_PROCID", "3"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NODELIST", "node[07-08]"),
        ("SLURM_GTIDS", "2,3"),
        ("SLURM_JOB_ID", "123"),
        ("SLURM_STEP_ID", "1"),
    ];

    #[test]
    fn a_task_of_srun_finds_its_rank_its_node_and_rank_zero() {
        let all = [&STEP[..], &[("UNISONO_JOB", KEY)]].concat();
        let (place, bootstrap) = launched_with(&all).expect("a task").expect("of a job");
        let bootstrap = bootstrap.expect("tasks meet");
        assert_eq!((place.rank, place.size), (Rank(3), 4));
        assert_eq!(bootstrap.here, [Rank(2), Rank(3)]);
        assert_eq!(bootstrap.root, "node07:31932");
        let elsewhere = [&all[..], &[("UNISONO_ROOT", "10.0.0.1:7000")]].concat();
        let (_, bootstrap) = launched_with(&elsewhere).expect("a task").expect("of a job");
        assert_eq!(bootstrap.expect("tasks meet").root, "10.0.0.1:7000");
    }

    #[test]
    fn without_a_key_a_task_is_told_how_to_make_one_and_no_task_is_alone() {
        let error = launched_with(&STEP).expect_err("there is no key").to_string();
        assert!(error.contains("task 3 of 4") && error.contains("export UNISONO_JOB="), "{error}");
        assert_eq!(
            launched_with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).expect("a batch script"),
            None
        );
        assert_eq!(launched_with(&[]).expect("no Slurm"), None);
        assert!(launched_with(&[("UNISONO_JOB", KEY)]).is_err(), "the key alone");
    }

    #[test]
    fn the_first_node_of_every_kind_of_list_is_found() {
        for (nodes, first) in [
            ("a,b", "a"),
            ("a", "a"),
            ("node[01-04,7],login", "node01"),
            ("r[1-2]n[3,4]", "r1n3"),
            ("[5-6]x", "5x"),
        ] {
            assert_eq!(first_node(nodes), first, "{nodes}");
        }
    }
}
