//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// maxObjects limits the records and leftovers of one kind that are read: some hundred times what
// a node has.
const maxObjects = 100_000

// makeDir creates a directory of the runtime. The umask does not change its mode.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// Modes of the runtime's directories. Only root can access them, except those on the path to a
// container's root file system: the root user of a user namespace has to pass through these.
// Others cannot list these directories. Each such path ends at a bundle, which only root can
// access or, with a user namespace, also the group of its root user. Outside of bundles, others
// can reach only one file: the program of infra processes.
const (
	closed = fs.FileMode(0o700)
	pass   = fs.FileMode(0o711)
	mapped = fs.FileMode(0o710) // group: the root group of the user namespace
)

// prepare creates RootDir and StateDir, and locks both.
func (r *Runtime) prepare() (unlock func(), err error) {
	var locks []*os.File
	unlock = func() {
		for _, l := range locks {
			_ = ownerlock.Release(l)
		}
	}
	dirs := []struct {
		path string
		mode fs.FileMode
		lock bool
	}{
		{r.cfg.RootDir, pass, true}, {r.cfg.StateDir, closed, true},
		{r.rootPath(containersDir), pass, false}, {r.rootPath(pauseDir), pass, false},
		{r.rootPath(recordsDir), closed, false}, {r.rootPath(sandboxesDir), closed, false},
		{r.statePath(streamsDir), closed, false}, {r.statePath(executorsDir), closed, false},
	}
	for _, d := range dirs {
		err := makeDir(d.path, d.mode)
		if err == nil && d.lock {
			var f *os.File
			if f, err = lock(d.path); err == nil {
				locks = append(locks, f)
			}
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
	if err := r.mounts.Private(r.rootPath(containersDir)); err != nil {
		unlock()
		return nil, err
	}
	if r.cfg.Monitor == "" {
		if r.cfg.Monitor, err = monitor.Place(r.rootPath(programsDir)); err != nil {
			unlock()
			return nil, fmt.Errorf("place the monitor program: %w", err)
		}
	}
	return unlock, nil
}

// lock locks a directory for this process. The error names the process that holds the lock.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := ownerlock.Take(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}

// leftovers are the IDs for which files without a usable record were found.
type leftovers struct {
	sandboxes  map[string]bool // record set aside, or without an owner
	containers map[string]bool
}

// awaitNetwork waits for the network's records. Without them, every sandbox would seem to have
// lost its network namespace and would be replaced.
func (r *Runtime) awaitNetwork() {
	l, ok := r.cfg.Network.(LoadingNetwork)
	if !ok {
		return
	}
	const warnAfter = 5 * time.Second
	late := time.AfterFunc(warnAfter, func() { r.log.Warn("waiting for the records of the network", zap.Duration("for", warnAfter)) })
	defer late.Stop()
	select {
	case <-l.Loaded():
	case <-r.base.Done():
	}
}

// recoverAll reads the records and starts the recovery of each sandbox. It returns when lists can
// be answered; a sandbox is known when its own recovery has finished.
func (r *Runtime) recoverAll() error {
	aside := leftovers{map[string]bool{}, map[string]bool{}}
	open := func(kind string, ids map[string]bool) (*checkpoint.Store, error) {
		return checkpoint.Open(checkpoint.Config{Dir: r.rootPath(recordsDir, kind), NoSync: true, OnCorrupt: func(key, where string, err error) {
			r.log.Warn("set aside damaged record", zap.String("kind", kind), zap.String("id", key), zap.String("file", where), zap.Error(err))
			ids[key] = true
		}})
	}
	var err error
	if r.sandboxRecords, err = open(sandboxesDir, aside.sandboxes); err != nil {
		return err
	}
	if r.containerRecords, err = open(containersDir, aside.containers); err != nil {
		return err
	}
	if err := r.readSandboxes(); err != nil {
		return err
	}
	if err := r.readContainers(&aside); err != nil {
		return err
	}
	past := r.allPods()
	if len(past) > 0 {
		r.awaitNetwork()
	}
	close(r.loaded)
	// Each pod is recovered by itself, a limited number at a time, so that a hung monitor delays
	// only its own pod.
	slots := make(chan struct{}, 16)
	var all []*op
	for _, p := range past {
		o := newOp()
		all = append(all, o)
		r.do(func(ctx context.Context) {
			defer o.finish(nil)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-slots }()
			r.recoverAtStart(ctx, p)
		})
	}
	r.do(func(ctx context.Context) {
		for _, p := range past {
			if p.await(ctx) != nil {
				return
			}
		}
		close(r.whole)
		for _, o := range all {
			if o.wait(ctx) != nil {
				return
			}
		}
		r.undoOrphans(ctx)
	})
	return nil
}

func (r *Runtime) readSandboxes() error {
	keys, err := r.sandboxRecords.Keys()
	if err != nil {
		return err
	}
	for _, id := range keys[:min(len(keys), maxObjects)] {
		b, err := r.sandboxRecords.Read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the record was set aside
		}
		if err != nil {
			return err
		}
		rec, config, err := decodeSandbox(id, b)
		if err != nil {
			if err := r.sandboxRecords.SetAside(id, err); err != nil {
				return err
			}
			continue
		}
		r.addPod(newPod(r, rec.sandboxFacts, life.LoadSandbox(rec.SandboxRecord), config))
	}
	return nil
}

// addPod adds a sandbox of an earlier process to the tables.
func (r *Runtime) addPod(p *pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[p.id] = p
	r.label(p, p.config.GetLabels(), 1)
	if !p.life.Shown() {
		return // its name may be used again
	}
	if old := r.names[p.key]; old == nil || old.created < p.created {
		r.names[p.key] = p
	}
}

// readContainers reads the records of containers. It also reads copies for damaged records, and
// for sandboxes with damaged records.
func (r *Runtime) readContainers(aside *leftovers) error {
	keys, err := r.containerRecords.Keys()
	if err != nil {
		return err
	}
	for _, id := range keys[:min(len(keys), maxObjects)] {
		b, err := r.containerRecords.Read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		rec, config, err := decodeContainer(id, b)
		if err != nil {
			if err := r.containerRecords.SetAside(id, err); err != nil {
				return err
			}
			continue
		}
		r.mu.Lock()
		p := r.pods[rec.Sandbox]
		r.mu.Unlock()
		if p == nil && rec.State == life.Removing {
			// Its sandbox was removed first. What remains of it is removed with other leftovers
			// without a record.
			if err := r.containerRecords.Delete(id); err != nil {
				return err
			}
			continue
		}
		if p == nil {
			if p = r.rebuildPod(id, rec.Sandbox); p == nil {
				aside.containers[id] = true
				r.log.Warn("found container without sandbox", zap.String("container", id), zap.String("sandbox", rec.Sandbox))
				if err := r.containerRecords.SetAside(id, errors.New("the container's sandbox has no record")); err != nil {
					return err
				}
				continue
			}
		}
		r.addContainer(newContainer(p, rec.containerFacts, life.LoadContainer(rec.Record, false), config))
	}
	for id := range aside.containers {
		r.rebuildContainer(id)
	}
	return nil
}

func (r *Runtime) addContainer(c *container) {
	p := c.pod
	r.mu.Lock()
	defer r.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.containers[c.id] != nil {
		return
	}
	r.containers[c.id], p.containers[c.id] = c, c
	r.label(p, c.config.GetLabels(), 1)
	if !c.life.Going() {
		p.names[c.key] = c
	}
}

// copies returns the copies of a container's and its sandbox's record: those that its
// monitor has, or else those in config.json.
func (r *Runtime) copies(id string, k *monitor.Kept) *recordCopy {
	read := func(b []byte) *recordCopy {
		var c recordCopy
		if len(b) == 0 || json.Unmarshal(b, &c) != nil || c.Container.ID != id {
			return nil
		}
		return &c
	}
	if k != nil {
		if c := read(k.Container.Record); c != nil {
			return c
		}
	}
	const most = 16 << 20
	b, err := safefile.ReadFile(r.rootPath(containersDir, id, configFile), most)
	if err != nil {
		return nil
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if json.Unmarshal(b, &spec) != nil {
		return nil
	}
	return read([]byte(spec.Annotations[recordAnnotation]))
}

// rebuildPod rebuilds a sandbox with a lost record from a container's copy. It returns nil if
// there is no copy.
func (r *Runtime) rebuildPod(container, sandbox string) *pod {
	found := r.copies(container, nil)
	if found == nil || found.Sandbox.ID != sandbox {
		return nil
	}
	return r.restorePod(found.Sandbox)
}

func (r *Runtime) restorePod(rec sandboxRecord) *pod {
	s, config, err := decodeSandbox(rec.ID, encode(rec))
	if err != nil {
		return nil
	}
	if s.State == life.Intent {
		return nil
	}
	r.mu.Lock()
	p := r.pods[s.ID]
	r.mu.Unlock()
	if p != nil {
		return p
	}
	p = newPod(r, s.sandboxFacts, life.LoadSandbox(s.SandboxRecord), config)
	r.addPod(p)
	r.log.Info("rebuilt record of sandbox", zap.String("sandbox", s.ID))
	r.do(p.keepRecord)
	return p
}

// rebuildContainer rebuilds a container with a lost record from config.json.
func (r *Runtime) rebuildContainer(id string) {
	found := r.copies(id, nil)
	if found == nil {
		return
	}
	r.restoreContainer(*found)
}

func (r *Runtime) restoreContainer(found recordCopy) {
	rec, config, err := decodeContainer(found.Container.ID, encode(found.Container))
	if err != nil {
		return
	}
	r.mu.Lock()
	p := r.pods[rec.Sandbox]
	r.mu.Unlock()
	if p == nil {
		if p = r.restorePod(found.Sandbox); p == nil {
			return
		}
	}
	c := newContainer(p, rec.containerFacts, life.LoadContainer(rec.Record, true), config)
	r.addContainer(c)
	r.log.Info("rebuilt record of container", zap.String("container", rec.ID))
	r.do(c.keepRecord)
}

// recoverAtStart finds out in which state an earlier process left a sandbox and its
// containers, and finishes interrupted operations.
func (r *Runtime) recoverAtStart(ctx context.Context, p *pod) {
	p.mu.Lock()
	event := plan(foundPod{record: p.recordLocked()}, r.cfg.BootID, 0).event
	p.mu.Unlock()
	if err := p.recoverPod(ctx, nil); err != nil && ctx.Err() == nil {
		r.log.Warn("failed to recover sandbox", zap.String("sandbox", p.id), zap.Error(err))
		r.do(func(ctx context.Context) {
			r.persist(ctx, "failed to recover sandbox", p.id, func() error { return p.recoverPod(ctx, nil) })
		})
	}
	if event != nil {
		_ = p.apply(event)
	}
	close(p.known)
	// Leftovers without a record are looked for after the first attempt.
	p.mu.Lock()
	phase := p.life.Phase()
	p.mu.Unlock()
	switch phase {
	case life.Stopping:
		r.persistFrom(ctx, "failed to stop sandbox", p.id, p.halt)
	case life.Removing:
		_ = p.removed(ctx)
	}
}

// persistFrom calls f until it succeeds. The first call is at once. If it fails, persistFrom
// returns and further calls are made in the background.
func (r *Runtime) persistFrom(ctx context.Context, failure, id string, f func(context.Context) error) {
	err := f(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	r.log.Warn(failure, zap.String("id", id), zap.Error(err))
	r.do(func(ctx context.Context) { r.persist(ctx, failure, id, func() error { return f(ctx) }) })
}

// recoverPod collects what is known about a sandbox's containers, and does what plan decides.
// dead is the connection to a monitor that has just ended, or nil. The connection has the
// descriptors that the next monitor needs.
func (p *pod) recoverPod(ctx context.Context, dead monitorConn) error {
	r := p.rt
	if ctx.Err() != nil { // the next runtime does it, and may have started
		return errStopped
	}
	m, state, err := p.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to monitor: %w", err)
	}
	known := map[string]*monitor.Kept{}
	for i := range state.Containers {
		k := &state.Containers[i]
		known[k.Container.ID] = k
		if k.Container.ID != p.id && p.find(k.Container.ID) == nil && isID(k.Container.ID) {
			if copy := r.copies(k.Container.ID, k); copy != nil && copy.Container.Sandbox == p.id {
				r.restoreContainer(*copy)
			}
		}
	}
	f, all := p.examine(ctx, m != nil, known, dead)
	a := plan(f, r.cfg.BootID, time.Now().UnixNano())
	orphan, infraEnded := p.infraStands(known)
	if m != nil {
		p.setMonitor(m)
	}
	var errs []error
	for i, act := range a.containers {
		errs = append(errs, all[i].recover(ctx, act))
	}
	if m == nil && (a.successor || orphan) {
		// If a monitor does not know a container, the next recovery concludes that it was not
		// told to start it. So the records are written first.
		for _, c := range all {
			c.keepRecord(ctx)
		}
		if m, err = p.launched(ctx); err != nil {
			return fmt.Errorf("start another monitor: %w", err)
		}
	}
	for i, act := range a.containers {
		if began, runs := act.event.(life.Began); runs && act.repair == adopt {
			if err := p.adopt(ctx, m, dead, all[i], began); err != nil {
				errs = append(errs, fmt.Errorf("make the monitor take over container %s: %w", all[i].id, err))
			}
		}
	}
	if infraEnded {
		p.infraEnded()
	} else if orphan && m != nil {
		errs = append(errs, p.adoptInfra(ctx, m, dead))
	}
	return errors.Join(errs...)
}

// connect connects to the running monitor of the sandbox. It returns nil if there is none, as
// after a reboot.
func (p *pod) connect(ctx context.Context) (monitorConn, monitor.State, error) {
	p.mu.Lock()
	have, boot := p.monitor, p.record.Boot
	p.mu.Unlock()
	if have != nil || boot != p.rt.cfg.BootID {
		return nil, monitor.State{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	m, state, err := p.rt.monitors.Connect(ctx, p.id)
	if errors.Is(err, monitor.ErrGone) {
		return nil, monitor.State{}, nil
	}
	return m, state, err
}

// examine collects the input of plan for each container of which this process does not
// know whether it runs.
func (p *pod) examine(ctx context.Context, monitored bool, known map[string]*monitor.Kept, dead monitorConn) (foundPod, []*container) {
	var all []*container
	f := foundPod{monitor: monitored}
	for _, c := range p.list() {
		p.mu.Lock()
		rec, copied, starts := c.recordLocked(), c.life.Copied(), c.startsLocked()
		p.mu.Unlock()
		if starts {
			continue
		}
		all = append(all, c)
		f.containers = append(f.containers, p.rt.examineContainer(ctx, c, foundContainer{record: rec, kept: keptOf(known[c.id]), rebuilt: copied}, monitored, dead))
	}
	p.mu.Lock()
	f.record = p.recordLocked()
	p.mu.Unlock()
	return f, all
}

func (r *Runtime) examineContainer(ctx context.Context, c *container, f foundContainer, monitored bool, dead monitorConn) foundContainer {
	rec := f.record
	if rec.State == life.Exited || rec.State == life.Removing {
		return f
	}
	if l := c.logPath(); l != "" {
		if fi, err := os.Lstat(l); err == nil {
			f.logged = fi.ModTime().UnixNano()
		}
	}
	if rec.Boot != r.cfg.BootID || f.kept != nil {
		return f
	}
	lost := !monitored || f.rebuilt
	if lost {
		r.endCommands(ctx, c)
	}
	if fi, err := os.Lstat(c.streams(pidFile)); err == nil {
		f.made = fi.ModTime().UnixNano()
	}
	if e, err := monitor.ReadExit(c.streams(exitFile)); err == nil {
		got := endingOf(e)
		f.exit = &got
	}
	// A process that has ended after its monitor is adopted too: from its descriptor the
	// successor learns how it ended.
	if rec.State == life.Running && rec.Process != nil && (alive(r.processes, *rec.Process) || keepsProcess(dead, c.id)) {
		f.alive = &life.Began{Process: *rec.Process, At: rec.Started}
	}
	if rec.State != life.Running && lost {
		f.state, f.alive = r.askExecutor(ctx, c)
	}
	return f
}

// keepsProcess reports whether the connection to a lost monitor has the pidfd of a container's
// process.
func keepsProcess(dead monitorConn, id string) bool {
	if dead == nil {
		return false
	}
	files := dead.Files(id)
	defer files.Close()
	return files.Pidfd != nil
}

// endCommands ends the commands of a lost monitor that still run for a container. A command that
// executes a process in the container is the parent of the process. While the command hangs, it
// does not reap the process, and the kernel does not end the first process of the PID namespace
// (pid_namespaces(7)).
func (r *Runtime) endCommands(ctx context.Context, c *container) {
	h, _, err := r.handler(c.pod.handler)
	if err != nil {
		return
	}
	if err := r.processes.EndCommands(ctx, h.Path, c.id); err != nil {
		r.log.Warn("failed to end commands of a monitor that is gone", zap.String("container", c.id), zap.Error(err))
	}
}

// askExecutor asks the OCI runtime how far an interrupted start of a container got.
func (r *Runtime) askExecutor(ctx context.Context, c *container) (executed, *life.Began) {
	_, x, err := r.handler(c.pod.handler)
	if err != nil {
		return executedNone, nil
	}
	s, err := x.State(ctx, c.id)
	if err != nil {
		return executedNone, nil
	}
	switch s.Status {
	case executor.Creating, executor.Created:
		return executedCreated, nil
	case executor.Running, executor.Paused:
		begin, _, err := r.processes.Start(s.PID)
		if err != nil {
			return executedStopped, nil
		}
		at := s.Since.UnixNano()
		if s.Since.IsZero() {
			at = time.Now().UnixNano()
		}
		return executedRunning, &life.Began{Process: life.Process{PID: s.PID, StartTime: begin}, At: at}
	default:
		return executedStopped, nil
	}
}

// keptOf converts a monitor's answer for plan.
func keptOf(k *monitor.Kept) *kept {
	if k == nil {
		return nil
	}
	out := &kept{}
	if s := k.Started; s != nil {
		began := beganOf(*s)
		out.started = &began
	}
	if k.Exit != nil {
		e := endingOf(*k.Exit)
		out.ended = &e
	}
	if k.StartError != nil {
		out.failed = shown(k.StartError.Message)
		if out.failed == "" {
			out.failed = k.StartError.Error()
		}
	}
	return out
}

// recover carries out plan's decision for a container, except its adoption.
func (c *container) recover(ctx context.Context, a containerAction) error {
	if a.repair == undoStart {
		if err := c.undoStart(ctx); err != nil {
			return err
		}
	}
	if a.event == nil {
		return nil
	}
	if err := c.apply(a.event); err != nil || a.event != life.Event(life.Resumed{}) {
		return err
	}
	return c.removed(ctx) // before leftovers without a record are looked for
}

// adopt makes a successor take over a running container.
func (p *pod) adopt(ctx context.Context, m, dead monitorConn, c *container, s life.Began) error {
	_, x, err := p.rt.handler(p.handler)
	if err != nil {
		return err
	}
	if err := c.makeStreams(); err != nil {
		return err
	}
	p.mu.Lock()
	k := monitor.Kept{Container: c.monitoredLocked(x), Started: &monitor.Started{PID: s.Process.PID, StartTime: s.Process.StartTime, At: time.Unix(0, s.At)}}
	p.mu.Unlock()
	return adoptBy(ctx, m, dead, k)
}

func adoptBy(ctx context.Context, m, dead monitorConn, k monitor.Kept) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	var files monitor.Files
	if dead != nil {
		files = dead.Files(k.Container.ID)
		defer files.Close()
	}
	err := m.Adopt(ctx, k, files)
	if errors.Is(err, monitor.ErrExists) { // an earlier attempt adopted it and failed later
		return nil
	}
	return err
}

// infraStands reports what a recovery has to do about the infra process. orphan means that it
// runs without a monitor, so that one has to take it over. ended means that it has ended.
func (p *pod) infraStands(known map[string]*monitor.Kept) (orphan, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record.Infra == nil || p.life.Phase() != life.Ready || p.record.Boot != p.rt.cfg.BootID || p.life.InfraDead() {
		return false, false
	}
	if k := known[p.id]; k != nil {
		return false, k.Exit != nil
	}
	runs := alive(p.rt.processes, *p.record.Infra)
	return runs, !runs
}

func (p *pod) adoptInfra(ctx context.Context, m, dead monitorConn) error {
	_, x, err := p.rt.handler(p.handler)
	if err != nil {
		return err
	}
	p.mu.Lock()
	k := monitor.Kept{Container: p.infraContainer(x), Started: &monitor.Started{PID: p.record.Infra.PID, StartTime: p.record.Infra.StartTime, At: time.Unix(0, p.created)}}
	p.mu.Unlock()
	return adoptBy(ctx, m, dead, k)
}

// busyMonitor retries f while the monitor reports that something is still running.
func busyMonitor(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, monitor.ErrRunning) || !retry.Sleep(ctx, pollPause) {
			return err
		}
	}
}
