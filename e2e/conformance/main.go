package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the settings of the command's flags.
type options struct {
	repository, bin, agent, out string
	focus, skip, labels         string
	procs                       int
	timeout                     time.Duration
	more                        string // lines of the KubeletConfiguration
	verbose                     bool
	storage, attach, mock       bool
	local                       bool
	kubelet                     string
}

func main() {
	if os.Getenv(unitSocket) != "" && filepath.Base(os.Args[0]) == "systemctl" {
		os.Exit(systemctl())
	}
	var o options
	flag.StringVar(&o.repository, "repository", ".", "root of the nodewright repository")
	flag.StringVar(&o.bin, "bin", "", "directory of e2e_node.test, ginkgo, agent and containerd; build/bin of the repository")
	flag.StringVar(&o.agent, "agent", "", "the agent's program; that of -bin")
	flag.StringVar(&o.out, "out", "", "directory of reports and logs; build/conformance of the repository")
	flag.StringVar(&o.focus, "focus", "", "regular expression of the specs to run")
	flag.StringVar(&o.skip, "skip", "", "regular expression of the specs to leave out")
	flag.StringVar(&o.labels, "labels", "NodeConformance && !Serial && !Flaky", "Ginkgo's expression of the labels that specs must have")
	flag.IntVar(&o.procs, "procs", 6, "number of specs that run at a time")
	flag.DurationVar(&o.timeout, "timeout", 3*time.Hour, "how long all may take")
	flag.StringVar(&o.more, "config", "", "more lines of the KubeletConfiguration")
	flag.BoolVar(&o.verbose, "v", false, "print what the suite says")
	flag.BoolVar(&o.storage, "storage", false, "run the storage suites of test/e2e against e2e/csidriver instead")
	flag.BoolVar(&o.attach, "attach", false, "with -storage: volumes have to be attached")
	flag.BoolVar(&o.mock, "mock", false, "with -storage: run the specs of mock CSI drivers instead, which run in pods")
	flag.BoolVar(&o.local, "local", false, "run the conformance specs of test/e2e that need a node alone against the agent's own API, without an API server")
	flag.StringVar(&o.kubelet, "kubelet", "", "program of a kubelet to run in the agent's place, for comparison")
	flag.Parse()
	switch {
	case o.storage:
		o.forStorage()
	case o.local:
		o.forLocal()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var failed bool
	err := download(ctx, o)
	var done bool
	if err == nil {
		done, err = separate(ctx, o.storage || o.local)
	}
	if err == nil && !done {
		failed, err = run(ctx, o)
	}
	stop()
	if err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// run makes the machine a node, runs the suite, prints the table, and removes the node. failed
// reports that a spec failed.
func run(ctx context.Context, o options) (failed bool, err error) {
	if err := o.complete(); err != nil {
		return false, err
	}
	m := &machine{o: o}
	if err := m.free(); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	if err := m.start(ctx); err != nil {
		return false, err
	}
	report := filepath.Join(o.out, "report.json")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	suiteErr := m.suite(ctx)
	specs, err := readReport(report)
	if err != nil {
		return false, errors.Join(suiteErr, err)
	}
	return printTable(os.Stdout, specs), nil
}

// forStorage sets the defaults for the storage suites.
func (o *options) forStorage() {
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if !set["labels"] {
		o.labels = "!Serial && !Flaky && !Disruptive && !Slow"
	}
	if !set["focus"] {
		o.focus = "External.Storage"
		if o.mock {
			o.focus = "CSI Mock"
		}
	}
	if o.mock && !set["skip"] {
		o.skip = `\[Feature:(SELinux|OffByDefault)\]` // of the machine, and of gates
	}
}

// complete sets the options for which no flag was given.
func (o *options) complete() (err error) {
	if o.repository, err = filepath.Abs(o.repository); err != nil {
		return err
	}
	orDefault(&o.bin, filepath.Join(o.repository, "build", "bin"))
	orDefault(&o.agent, filepath.Join(o.bin, "agent"))
	orDefault(&o.out, filepath.Join(o.repository, "build", "conformance"))
	for _, p := range []*string{&o.bin, &o.agent, &o.out, &o.kubelet} {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	needs := []string{filepath.Join(o.bin, "ginkgo")}
	switch {
	case o.kubelet != "":
		needs = append(needs, o.kubelet)
	default:
		needs = append(needs, o.agent)
	}
	if o.storage {
		for _, name := range []string{"e2e.test", "cluster", "csidriver", "csi-provisioner", "csi-resizer"} {
			needs = append(needs, filepath.Join(o.bin, name))
		}
	} else if o.local {
		needs = append(needs, filepath.Join(o.bin, "e2e.test"), filepath.Join(o.bin, "cluster"))
	} else {
		needs = append(needs, filepath.Join(o.bin, "e2e_node.test"))
	}
	if o.attach || o.mock {
		needs = append(needs, filepath.Join(o.bin, "csi-attacher"))
	}
	if o.mock {
		needs = append(needs, filepath.Join(o.bin, "csi-snapshotter"), filepath.Join(o.bin, "snapshot-controller"))
	}
	for _, p := range needs {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("%w; make conformance builds it", err)
		}
	}
	return os.MkdirAll(o.out, 0o755)
}

func orDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}
