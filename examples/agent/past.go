package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/record"
)

// pastFlags are the flags of "agent why" about an earlier time.
type pastFlags struct {
	at, output string
	since      time.Duration
}

func (f *pastFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.at, "at", "", "explain the state at an earlier `time`: 03:12, 03:12:07, '2026-11-28 03:12' or RFC 3339")
	cmd.Flags().DurationVar(&f.since, "since", 0, "list what happened in the last `duration`, such as 12h")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "the `format` of an answer about an earlier time: json")
	completeFlag(cmd, "output", oneOf("json"))
}

func (f *pastFlags) given() bool { return f.at != "" || f.since != 0 || f.output != "" }

// recordDir returns the directory of the agent's record.
func (c *clientFlags) recordDir() string { return filepath.Join(rootDirOr(c.rootDir), "record") }

// past prints the state of a pod or of the node at an earlier time, or what happened since. It reads
// the files of the record, so it works without a running agent, and for removed pods.
func (c *clientFlags) past(std stdio, names []string, f *pastFlags) error {
	now := time.Now()
	q := local.PastQuery{}
	var err error
	switch {
	case len(names) != 1:
		return errPodName
	case f.output != "" && f.output != "json":
		return fmt.Errorf("-o %q: want json", f.output)
	case f.at != "" && f.since != 0:
		return errors.New("--at and --since: want one of them")
	case f.at != "":
		if q.At, q.Within, err = parseAt(f.at, now); err != nil {
			return err
		}
	case f.since > 0:
		q.Since = now.Add(-f.since)
	default:
		return fmt.Errorf("-o and --since=%v: want --at TIME, or a positive --since", f.since)
	}
	if q.Namespace, q.Name, err = c.podName(names[0]); err != nil {
		return err
	}
	past, err := agent.Past(c.recordDir(), q)
	if err != nil {
		return recordError(err)
	}
	if f.output == "json" {
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		return enc.Encode(past)
	}
	for _, line := range past.Lines(now) {
		fmt.Fprintln(std.out, oneLineIndented(line))
	}
	return nil
}

// podName splits the name of a pod, which may be NAMESPACE/NAME. For "node" both results are "".
func (c *clientFlags) podName(given string) (namespace, name string, err error) {
	if given == "node" {
		return "", "", nil
	}
	ns, name, ok := strings.Cut(given, "/")
	switch {
	case !ok:
		return c.namespace, given, nil
	case resourceNamed(ns) == &resources[0]: // as get -o name has it
		return c.namespace, name, nil
	case c.namespace != "" && c.namespace != ns:
		return "", "", fmt.Errorf("-n %s with %q: which namespace?", c.namespace, given)
	default:
		return ns, name, nil
	}
}

// recordError adds advice to an error from reading the record.
func recordError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\n  run it as the user of the agent, such as root", err)
	}
	return err
}

// parseAt parses a time of a user. within is the precision: a second, or a minute without seconds. A
// time of day means the last such time before now.
func parseAt(s string, now time.Time) (at time.Time, within time.Duration, err error) {
	for _, f := range []struct {
		layout string
		within time.Duration
		day    bool
	}{
		{time.RFC3339Nano, time.Second, false},
		{time.DateTime, time.Second, false}, {"2006-01-02 15:04", time.Minute, false},
		{"2006-01-02T15:04:05", time.Second, false}, {"2006-01-02T15:04", time.Minute, false},
		{time.TimeOnly, time.Second, true}, {"15:04", time.Minute, true},
	} {
		t, err := time.ParseInLocation(f.layout, s, time.Local)
		if err != nil {
			continue
		}
		if f.day {
			y, m, d := now.Date()
			t = time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.Local)
			if t.After(now) {
				t = t.AddDate(0, 0, -1)
			}
		}
		return t, f.within, nil
	}
	return at, 0, fmt.Errorf("--at=%q: want a time such as 03:12, 03:12:07, '2026-11-28 03:12' or 2026-11-28T03:12:07Z", s)
}

func newRecord(std stdio) *cobra.Command {
	cmd := &cobra.Command{Use: "record", Short: "Write the record of a pod, the node or the machine to a file, for example for a bug report"}
	var c clientFlags
	var anonymous bool
	export := &cobra.Command{
		Use: "export NAME|node FILE", Short: "Write the record of a pod or the node to a new file",
		Example: "  agent record export web web.record\n  agent record export web --anonymous web.record\n  agent record export node - | gzip > node.record.gz",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("record export: want the name of a pod, or node, and a file; - means standard output")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.export(std, args[0], args[1], anonymous) },
	}
	c.registerPods(export)
	export.Flags().BoolVar(&anonymous, "anonymous", false, "replace names, IDs and addresses by hashes, and leave out messages")
	machine := &cobra.Command{
		Use: "machine FILE", Short: "Write the files of /proc, /sys and cgroups that the agent reads to a new file, without personal details",
		Long: `Write the files of /proc, /sys and cgroups that the agent reads to a new zip file, for example for a bug report about an
unusual machine. The zip file contains names of disks and network interfaces, but no names of users, hosts, programs and
pods, no addresses and no serial numbers. Tests can use it with the package node/kerneltest.`,
		Example: "  agent record machine machine.zip",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("record machine: want a file; - means standard output")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return toFile(std, args[0], func(w io.Writer) error { return kernel.Record(cmd.Context(), kernel.Dir("/"), w) })
		},
	}
	cmd.AddCommand(export, machine, newRecordKubelet(std))
	return cmd
}

// toFile calls write with a new file that only its owner can read, or with standard output if path is
// "-". It fails if the file exists.
func toFile(std stdio, path string, write func(io.Writer) error) error {
	if path == "-" {
		return write(std.out)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// export writes the record's entries about a pod or the node to a file.
func (c *clientFlags) export(std stdio, given, path string, anonymous bool) error {
	namespace, name, err := c.podName(given)
	if err != nil {
		return err
	}
	entries, _, err := agent.Recorded(c.recordDir(), namespace, name)
	if err != nil {
		return recordError(err)
	}
	if anonymous {
		entries = record.Anonymize(entries)
	}
	if err := toFile(std, path, func(w io.Writer) error { return record.Write(w, entries) }); err != nil || path == "-" {
		return err
	}
	fmt.Fprintf(std.err, "%d entries in %s\n", len(entries), path)
	return nil
}

// decidesOtherwise is the exit code of "agent replay" if this version makes a decision differently.
const decidesOtherwise exitError = 1

func newReplay(std stdio) *cobra.Command {
	return &cobra.Command{
		Use: "replay FILE", Short: "Repeat the decisions in a file of record export, and show where this version decides differently",
		Example: "  agent replay web.record\n  agent replay - < web.record",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("replay: want one file of agent record export; - means standard input")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return replay(std, args[0]) },
	}
}

// replay prints each recorded decision, and the differences if this version decides differently. It
// returns decidesOtherwise if there are differences.
func replay(std stdio, path string) error {
	in := std.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	entries, err := record.ReadFile(in)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	now, different, shadowed, others := time.Now(), 0, 0, 0
	steps := record.Replay(entries)
	for _, s := range steps {
		fmt.Fprintf(std.out, "%s  %s/%s  %s\n", local.When(s.At, now), oneLine(s.Pod.Namespace), oneLine(s.Pod.Name), oneLine(s.Decision.Result.String()))
		for _, d := range s.Differences {
			fmt.Fprintln(std.out, "  this version decides differently: "+oneLine(d))
		}
		for _, d := range s.Other {
			fmt.Fprintln(std.out, "  the other agent "+oneLine(d))
		}
		if len(s.Differences) > 0 {
			different++
		}
		if s.Decision.Shadow {
			shadowed++
			others += min(len(s.Other), 1)
		}
	}
	fmt.Fprintf(std.out, "%d decisions, %d of which this version makes differently\n", len(steps), different)
	if shadowed > 0 {
		fmt.Fprintf(std.out, "%d of them are about pods of another agent, which acted differently after %d\n", shadowed, others)
	}
	if err == nil && different > 0 {
		err = decidesOtherwise
	}
	return err
}
