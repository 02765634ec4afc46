// Command run is "make run": the example agent with the pods of a manifests
// directory, on its own container runtime or on a private containerd, until Ctrl-C.
//
//	run [--runtime localcri|containerd] [--manifests DIR] [--exit-after-ready] [--timeout 3m] [--tools-only]
//
// Before it exits, it stops all processes that it started, and removes all pods,
// mounts, cgroups, the bridge and the directory build/run.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/internal/containerdtest"
)

func main() {
	runtime.LockOSThread() // the parent-death signal of the agent depends on this thread
	manifests := flag.String("manifests", "", "a `directory` of manifests, used in place; default: a copy of examples/manifests")
	once := flag.Bool("exit-after-ready", os.Getenv("RUN_ONCE") != "", "exit when all pods are ready; RUN_ONCE=1 has the same effect")
	kind := flag.String("runtime", cmp.Or(os.Getenv("RUNTIME"), localcri), "the container `runtime`: localcri (the agent's own) or containerd; default: $RUNTIME or localcri")
	tools := flag.Bool("tools-only", false, "build the tools and the agent, and exit")
	timeout := flag.Duration("timeout", 3*time.Minute, "how `long` the pods may take to become ready")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, settings{runtime: *kind, manifests: *manifests, once: *once, toolsOnly: *tools, timeout: *timeout})
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
	default:
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

type settings struct {
	runtime   string
	manifests string
	once      bool
	toolsOnly bool
	timeout   time.Duration
}

func run(ctx context.Context, s settings) (err error) {
	p, err := findPaths(s.manifests)
	if err != nil {
		return err
	}
	if s.runtime != localcri && s.runtime != containerd {
		return fmt.Errorf("--runtime=%q: want %s or %s", s.runtime, localcri, containerd)
	}
	if err := provide(ctx, p, s); err != nil || s.toolsOnly {
		return err
	}
	release, err := p.claim()
	if err != nil {
		return err
	}
	defer release()
	if err := containerdtest.UnmountBelow(p.agentRoot); err != nil {
		return err
	}
	start := startContainerd
	if s.runtime == localcri {
		start = prepareLocal
	}
	b, err := start(ctx, p)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := b.clear(); cerr != nil {
			err = errors.Join(err, cerr)
			return
		}
		err = errors.Join(err, p.remove(err != nil && ctx.Err() == nil))
	}()

	// The pods of an earlier run that was killed are removed by now. The new pods have the
	// same UIDs, so old logs would count as their restarts.
	if err := errors.Join(os.RemoveAll(p.agentRoot), os.RemoveAll(p.podLogs), p.copyManifests()); err != nil {
		return err
	}
	a, err := startAgent(p, b.args)
	if err != nil {
		return err
	}
	defer a.stop()
	if err := a.awaitPods(ctx, s.timeout); err != nil {
		return err
	}
	if s.once {
		return nil
	}
	a.printCommands(b.endpoint)
	select {
	case <-ctx.Done():
		fmt.Println()
		return nil
	case <-a.done:
		return a.ended()
	}
}

func say(format string, args ...any) { fmt.Printf("run: "+format+"\n", args...) }

// paths has the paths of the files that this command reads and writes.
type paths struct {
	repository, bin string
	run             string // removed at the end, with all files below it
	containerd      string
	agentRoot       string
	agentLog        string
	agentConfig     string
	podLogs         string
	manifests       string
	ownManifests    bool // the user's directory: neither filled nor removed
}

func findPaths(manifests string) (paths, error) {
	wd, err := os.Getwd()
	if err != nil {
		return paths{}, err
	}
	if _, err := os.Stat(filepath.Join(wd, "examples", "agent")); err != nil {
		return paths{}, errors.New("start this in the root of the repository, as make run does")
	}
	dir := filepath.Join(wd, "build", "run")
	p := paths{
		repository: wd, bin: filepath.Join(wd, "build", "bin"), run: dir,
		containerd: filepath.Join(dir, "containerd"), agentRoot: filepath.Join(dir, "agent"),
		agentLog: filepath.Join(dir, "agent.log"), agentConfig: filepath.Join(dir, "agent.yaml"),
		podLogs: filepath.Join(dir, "logs"), manifests: filepath.Join(dir, "manifests"),
	}
	// A unix socket's path has at most 107 bytes (unix(7)).
	if n := len(filepath.Join(p.containerd, "containerd.sock.ttrpc")); n > 107 {
		return paths{}, fmt.Errorf("the path of this repository is too long for a unix socket in it: the socket's path has %d bytes, want at most 107", n)
	}
	if manifests != "" {
		p.ownManifests = true
		if p.manifests, err = filepath.Abs(manifests); err != nil {
			return paths{}, err
		}
	}
	return p, nil
}

// rel returns a path relative to the repository's root, for messages.
func (p paths) rel(path string) string {
	if r, err := filepath.Rel(p.repository, path); err == nil {
		return r
	}
	return path
}

// claim locks build/run until release is called. It fails while another run holds the lock.
func (p paths) claim() (release func(), err error) {
	if err := os.MkdirAll(p.run, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Dir(p.run))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another make run uses "+p.rel(p.run)), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func (p paths) copyManifests() error {
	if p.ownManifests {
		return nil
	}
	if err := os.RemoveAll(p.manifests); err != nil {
		return err
	}
	return os.CopyFS(p.manifests, os.DirFS(filepath.Join(p.repository, "examples", "manifests")))
}

// remove deletes build/run. If keepLogs is true, it deletes only the agent's root directory.
func (p paths) remove(keepLogs bool) error {
	if err := containerdtest.UnmountBelow(p.agentRoot); err != nil {
		return err
	}
	if keepLogs {
		say("logs are kept in %s", p.rel(p.run))
		return os.RemoveAll(p.agentRoot)
	}
	return errors.Join(containerdtest.UnlinkLogs(p.podLogs), os.RemoveAll(p.run))
}
