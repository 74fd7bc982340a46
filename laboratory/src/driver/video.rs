//! Provides the video that a server streams: MPEG-1 of 1.5 Mbit/s and 30 frames a second, encoded by ffmpeg
//! if it is installed.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use unisono_linux::programs::on_path;
use unisono_study::child::{self, StudyChild};
use unisono_study::driver::{Context, NoResult};

/// The time limit for ffmpeg. It takes about a second.
const ENCODE_TIMEOUT: Duration = Duration::from_secs(60);
/// The options of ffmpeg: a moving pattern with noise, so that frames do not compress to almost nothing. The
/// rate is constant, as in the paper's video. A group of pictures is half a second long.
const OPTIONS: &str = "-v error -y -f lavfi -i testsrc2=size=352x240:rate=30:duration=20,noise=alls=20:allf=t \
     -c:v mpeg1video -b:v 1500k -minrate 1500k -maxrate 1500k -bufsize 1500k -g 15 -bf 2 -f mpeg1video";

/// Returns the source of the frames, for the records.
pub(super) fn source() -> &'static str {
    if on_path("ffmpeg").is_some() { "ffmpeg" } else { "generator" }
}

/// Returns the encoded video, made once in a study, or `None` without ffmpeg.
pub(super) fn encoded(context: Context) -> Result<Option<PathBuf>, NoResult> {
    let Some(ffmpeg) = on_path("ffmpeg") else { return Ok(None) };
    let video = context.directory.join("video.m1v");
    if !video.exists() {
        let unfinished = video.with_extension("part");
        let mut command = Command::new(ffmpeg);
        command.args(OPTIONS.split_whitespace()).arg(&unfinished);
        child::wait_all(&mut [StudyChild::start(command)?], ENCODE_TIMEOUT, context.interrupted)?;
        std::fs::rename(&unfinished, &video)
            .map_err(|error| NoResult::Failed(format!("cannot rename {}: {error}", unfinished.display())))?;
    }
    Ok(Some(video))
}
