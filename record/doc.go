// Package record is a flight recorder: it records the facts and decisions of a node agent, so that
// they can be explained and replayed later.
//
//	r, err := record.New(record.Config{Dir: "/var/lib/agent/record"})
//	if err != nil {
//		return err
//	}
//	go r.Run(ctx)
//	...
//	r.Record(record.Entry{Pod: pod, Container: "app", Fact: &record.Probe{Type: "liveness", Code: 503}})
//
// A [Recorder] has the methods of a part with goroutines (package agent/part), so that it can be
// in the list of parts of an agent of this module. Programs with another agent call
// [Recorder.Record].
//
// # What is recorded
//
// A [Fact] is one of a closed set of structs whose fields are listed one by one. There are names,
// images, policies, IDs, numbers, times, addresses of probes, and words of closed sets. There is no
// environment variable, argument, annotation, label, content of a file or output of a container, and
// no text of an error, which may quote any of these: see [ErrorWord].
//
// Most facts are states. An entry is written only if its state differs from the last one of the
// same object, also after a restart of the process. So the caller may pass the same state
// repeatedly. While no state changes, nothing is written and no timer runs.
//
// # Files
//
// The files are in one directory. They are append-only, and have at most [Config.MaxBytes]
// together; the oldest file is removed to make space. Entries are written in batches, one second
// after the first at the latest, and synced five seconds later. A kill of the process loses the
// last second, a power failure the last five. A line that a crash has cut off is dropped at the
// next start. Each line has a length and a checksum.
//
// [Read] reads the directory, also while the recorder writes. [Write] and [ReadFile] are for files
// with some of the entries, and [Anonymize] replaces the names in them.
//
// # Decisions
//
// [Decide] is podlife.Decide with a record of its inputs. [Decision.Again] repeats the decision
// with these inputs and the code of the running program, and [Decision.Differs] compares the
// results.
//
// Tier: beta.
package record
