package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/podmgr"
)

// Intervals of a Manager.
const (
	DefaultInterval = time.Minute
	lookInterval    = time.Second // between looks at the pods on trial
	failureWait     = 5 * time.Second
	maxFailureWait  = 10 * time.Minute // longer than Interval only if that is longer
	pollJitter      = 0.2              // so that a fleet does not ask at the same time
)

// Store stores the Record and the artifacts; *checkpoint.Lazy implements it. A write survives a
// power failure when it returns. Only the Manager's Run calls it.
type Store interface {
	// Read returns an error that is fs.ErrNotExist if there is no value of the key.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// Node runs the pods. Its methods are called from any goroutine, from Run on.
type Node interface {
	// EnsureImages returns when all images of a pod are on the node. The pod may not run yet.
	EnsureImages(ctx context.Context, pod *v1.Pod) error
	// Pods returns the pods of the node with their statuses.
	Pods() []*v1.Pod
}

// Fetch is [Registry.Document] for the repository of one reference.
type Fetch = func(ctx context.Context, kind, ref string, limit int64) ([]byte, error)

// Config holds what a Manager needs. NodeName, Store and Node are required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// NodeName is appended to the names of pods, and decides about Rollout.Percent.
	NodeName string
	Store    Store
	Node     Node
	// Ref is the reference with a tag that is polled. If it is "", nothing is polled.
	Ref string
	// Interval is the time between polls, which varies by a fifth. The default is DefaultInterval.
	Interval time.Duration
	Registry Registry // without credentials
	// Verify decides whether the bundle with a digest may be fetched; ref is "" for one of a file.
	// fetch reads from the repository of ref, and is nil for a bundle of a file. An error is shown, and
	// the bundle offered again at the next poll. If Verify is nil, every bundle may be used.
	Verify func(ctx context.Context, ref, digest string, fetch Fetch) error

	Log *zap.Logger // if nil, nothing is logged
}

// Manager is a podmgr.Source whose pods are those of a bundle. Its methods may be called from any
// goroutine.
type Manager struct {
	cfg   Config
	turns chan turn

	// mu guards status, which Run replaces.
	mu     sync.Mutex
	status Status

	// The fields below are those of Run's goroutine.
	record  Record
	bundles map[string]*loaded // that record needs, by digest
	deliver func(podmgr.Snapshot)
	// shown is the digest of the delivered pods. pulled is a bundle whose images are there; pulling
	// ends the work of the pull.
	shown   *string
	pulled  string
	pulling context.CancelFunc
	trial   *trial
}

// loaded is a bundle with its decoded objects.
type loaded struct {
	*Bundle
	snapshot podmgr.Snapshot
}

// turn is work for Run's goroutine.
type turn struct {
	do   func() error
	done chan error
}

// Status says which bundle runs and what comes next.
type Status struct {
	Record
	// Ref is the polled reference, Polled the time of the last answer, and PollError why the last
	// poll failed.
	Ref       string    `json:"ref,omitempty"`
	Polled    time.Time `json:"polled,omitzero"`
	PollError string    `json:"pollError,omitempty"`
	// Waits says what Next waits for.
	Waits string `json:"waits,omitempty"`
	// Place is the node's place in rollouts: it takes bundles whose percent is larger.
	Place int `json:"place"`
}

// New checks cfg and returns a Manager. It opens and requests nothing before Run.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("Config.NodeName is required"))
	}
	if cfg.Store == nil || cfg.Node == nil {
		errs = append(errs, errors.New("Config.Store and Config.Node are required"))
	}
	if cfg.Ref != "" {
		if _, err := parse(cfg.Ref); err != nil {
			errs = append(errs, fmt.Errorf("Config.Ref: %w", err))
		}
	}
	if cfg.Interval < 0 {
		errs = append(errs, fmt.Errorf("Config.Interval: %v: want a positive duration", cfg.Interval))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Manager{cfg: cfg, turns: make(chan turn), status: Status{Ref: cfg.Ref, Place: place(cfg.NodeName)}}, nil
}

// Name returns "bundle".
func (m *Manager) Name() string { return "bundle" }

// Status returns the current status. It does not block.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *Manager) setStatus(change func(*Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.status)
}

// Apply puts a bundle of a file into effect. It returns when the bundle is stored: [Manager.Status]
// says what becomes of it. A bundle that was rejected is tried again, and Rollout.Percent is
// ignored. The error is an ErrInvalid, ErrOnTrial, that of Config.Verify or of the disk.
func (m *Manager) Apply(ctx context.Context, b *Bundle) error {
	if err := m.verify(ctx, "", b.Digest); err != nil {
		return err
	}
	return m.offer(ctx, b, "")
}

// Fetch gets the bundle that a reference has now, and puts it into effect like Apply.
func (m *Manager) Fetch(ctx context.Context, ref string) (digest string, err error) {
	if digest, err = m.cfg.Registry.Resolve(ctx, ref); err != nil {
		return "", err
	}
	b, err := m.fetch(ctx, ref, digest)
	if err != nil {
		return digest, err
	}
	seen := ""
	if ref == m.cfg.Ref {
		seen = digest // not again by the next poll
	}
	return digest, m.offer(ctx, b, seen)
}

// Rollback ends the trial of a bundle or, if there is none, brings the bundle back that was good
// before. The bundle that ran until then is not tried again until the tag has another digest.
func (m *Manager) Rollback(ctx context.Context) error {
	return m.inTurn(ctx, func() error {
		r, err := m.record.rolledBack(time.Now())
		if err != nil {
			return err
		}
		return m.commit(r)
	})
}

func (m *Manager) verify(ctx context.Context, ref, digest string) error {
	if m.cfg.Verify == nil {
		return nil
	}
	var fetch Fetch
	if ref != "" {
		fetch = func(ctx context.Context, kind, name string, limit int64) ([]byte, error) {
			return m.cfg.Registry.Document(ctx, ref, kind, name, limit)
		}
	}
	if err := m.cfg.Verify(ctx, ref, digest, fetch); err != nil {
		return fmt.Errorf("bundle %s is refused: %w", digest, err)
	}
	return nil
}

func (m *Manager) fetch(ctx context.Context, ref, digest string) (*Bundle, error) {
	if err := m.verify(ctx, ref, digest); err != nil {
		return nil, err
	}
	return m.cfg.Registry.Fetch(ctx, ref, digest)
}

// offer validates a bundle, and puts it into effect if it is valid. seen is its digest if it is that
// of the polled tag, or "".
func (m *Manager) offer(ctx context.Context, b *Bundle, seen string) error {
	snapshot, err := b.Snapshot(m.cfg.NodeName)
	if err != nil {
		return err
	}
	archive, err := b.Archive()
	if err != nil {
		return err
	}
	return m.inTurn(ctx, func() error {
		r, err := m.record.offered(b.Digest)
		if err != nil {
			return err
		}
		if seen != "" {
			r.Seen = seen
		}
		// Before the Record that needs it.
		if m.bundles[b.Digest] == nil {
			if err := m.cfg.Store.Write(key(b.Digest), archive); err != nil {
				return fmt.Errorf("store bundle: %w", err)
			}
			m.bundles[b.Digest] = &loaded{b, snapshot}
		}
		if r.Next != nil {
			m.cfg.Log.Info("bundle arrived", zap.String("digest", b.Digest), zap.Int("pods", len(snapshot.Pods)))
		}
		return m.commit(r)
	})
}

// inTurn calls do on Run's goroutine.
func (m *Manager) inTurn(ctx context.Context, do func() error) error {
	t := turn{do, make(chan error, 1)}
	select {
	case m.turns <- t:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run delivers the pods of the stored bundle, polls, and replaces the pods when another bundle takes
// effect, until ctx ends. It returns an error if the stored state cannot be read.
func (m *Manager) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	m.deliver, m.shown, m.trial = deliver, nil, nil
	if err := m.load(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	defer m.stopPull()
	if m.cfg.Ref != "" {
		beside.Go(func() { m.poll(ctx) })
	}
	pulled := make(chan string)
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		// Nothing to look at without a next bundle, so that an idle node does not wake up.
		ticks := tick.C
		switch next := m.record.Next; {
		case next == nil:
			ticks = nil
		case next.Trials == 0 && m.pulling == nil:
			b := m.bundles[next.Digest]
			var pull context.Context
			pull, m.pulling = context.WithCancel(ctx)
			beside.Go(func() { m.pull(pull, b, pulled) })
		}
		select {
		case <-ctx.Done():
			return nil
		case t := <-m.turns:
			t.done <- t.do()
		case m.pulled = <-pulled:
			m.look()
		case <-ticks:
			m.look()
		}
	}
}

// stateKey is the key of the Record; artifacts have those of key.
const (
	stateKey  = "state"
	keyPrefix = "bundle-"
)

func key(digest string) string { return keyPrefix + strings.TrimPrefix(digest, "sha256:") }

// load reads the Record and its artifacts, and begins an interrupted trial again.
func (m *Manager) load() error {
	m.record, m.bundles = Record{}, map[string]*loaded{}
	text, err := m.cfg.Store.Read(stateKey)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read state of bundles: %w", err)
	default:
		if err := json.Unmarshal(text, &m.record); err != nil {
			return fmt.Errorf("state of bundles: %w", err)
		}
	}
	r, now := m.record, time.Now()
	for _, digest := range []string{r.Good, r.Before, r.nextDigest()} {
		if digest == "" || m.bundles[digest] != nil {
			continue
		}
		b, err := m.open(digest)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errDamaged) {
			return fmt.Errorf("read bundle %s: %w", digest, err) // a disk that does not answer is no loss
		}
		if err != nil {
			m.cfg.Log.Error("stored bundle is lost", zap.String("digest", digest), zap.Error(err))
			r = r.lost(digest, now)
			continue
		}
		m.bundles[digest] = b
	}
	return m.commit(r.started(now))
}

func (r Record) nextDigest() string {
	if r.Next == nil {
		return ""
	}
	return r.Next.Digest
}

// errDamaged means that a stored artifact is no valid bundle.
var errDamaged = errors.New("damaged")

func (m *Manager) open(digest string) (*loaded, error) {
	archive, err := m.cfg.Store.Read(key(digest))
	if err != nil {
		return nil, err
	}
	b, err := Read(bytes.NewReader(archive))
	if err == nil && b.Digest != digest {
		err = errDigest
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	snapshot, err := b.Snapshot(m.cfg.NodeName)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return &loaded{b, snapshot}, nil
}

// commit stores a Record, and then acts on it: it delivers the pods of the bundle that runs now, and
// removes the artifacts that are not needed. After an error nothing has changed.
func (m *Manager) commit(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := m.cfg.Store.Write(stateKey, text); err != nil {
		return fmt.Errorf("store state of bundles: %w", err)
	}
	was := m.record
	m.record = r
	if r.Next == nil || was.Next == nil || *r.Next != *was.Next {
		m.stopPull()
		m.trial = nil
		m.setStatus(func(s *Status) { s.Waits = "" })
	}
	m.setStatus(func(s *Status) { s.Record = r })
	if r.Rejected != nil && (was.Rejected == nil || *was.Rejected != *r.Rejected) {
		m.cfg.Log.Warn("bundle rejected", zap.String("digest", r.Rejected.Digest), zap.String("reason", r.Rejected.Reason), zap.String("running", r.Running()))
	}
	if running := r.Running(); m.shown == nil || *m.shown != running {
		m.shown = &running
		m.show(running)
	}
	if r.onTrial() && m.trial == nil {
		m.trial = &trial{rollout: m.bundles[r.Next.Digest].Rollout, begun: time.Now()}
	}
	m.sweep()
	return nil
}

// show delivers the pods of a bundle, or none for "".
func (m *Manager) show(digest string) {
	var s podmgr.Snapshot
	if b := m.bundles[digest]; b != nil {
		s = b.snapshot
		// The receiver owns what it gets, and the bundle may come back.
		s.Pods = nil
		for _, p := range b.snapshot.Pods {
			s.Pods = append(s.Pods, p.DeepCopy())
		}
		m.cfg.Log.Info("bundle runs", zap.String("digest", digest), zap.Bool("trial", m.record.onTrial()), zap.Int("pods", len(s.Pods)))
	}
	m.deliver(s)
}

// sweep removes the artifacts that the Record does not need. If it fails, the next one does it.
func (m *Manager) sweep() {
	maps.DeleteFunc(m.bundles, func(digest string, _ *loaded) bool { return !m.record.needs(digest) })
	keys, err := m.cfg.Store.Keys()
	for _, k := range keys {
		digest, is := strings.CutPrefix(k, keyPrefix)
		if is && !m.record.needs("sha256:"+digest) {
			err = errors.Join(err, m.cfg.Store.Delete(k))
		}
	}
	if err != nil {
		m.cfg.Log.Warn("failed to remove old bundles", zap.Error(err))
	}
}

// stopPull ends the pull of images that are not needed any more.
func (m *Manager) stopPull() {
	if m.pulling != nil {
		m.pulling()
		m.pulling = nil
	}
	m.pulled = ""
}

// pull pulls the images of a bundle until all are on the node or ctx ends, and reports the digest.
// A failure does no harm, since the bundle before runs: it is tried again without an end.
func (m *Manager) pull(ctx context.Context, b *loaded, done chan<- string) {
	wait := retry.Backoff{First: failureWait, Max: maxFailureWait, Jitter: pollJitter}
	for {
		err := m.pullOnce(ctx, b)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		text := short(err)
		m.cfg.Log.Warn("failed to pull images of bundle", zap.String("digest", b.Digest), zap.String("error", text))
		m.setStatus(func(s *Status) {
			if s.Next != nil && s.Next.Digest == b.Digest {
				s.Waits = text
			}
		})
		if !wait.Wait(ctx) {
			return
		}
	}
	select {
	case done <- b.Digest:
	case <-ctx.Done():
	}
}

func (m *Manager) pullOnce(ctx context.Context, b *loaded) error {
	var errs []error
	for _, p := range b.snapshot.Pods {
		if err := m.cfg.Node.EnsureImages(ctx, p.DeepCopy()); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// look makes the next step of r.Next, if it is time for one. A step that cannot be stored is made
// at the next look.
func (m *Manager) look() {
	r := m.record
	switch {
	case r.onTrial():
		v, text := m.trial.look(time.Now(), m.bundles[r.Next.Digest].snapshot.Pods, m.cfg.Node.Pods())
		switch v {
		case waiting:
			m.setStatus(func(s *Status) { s.Waits = text })
			return
		case healthy:
			m.cfg.Log.Info("bundle is good", zap.String("digest", r.Next.Digest))
			r = r.healthy()
		case failed:
			r = r.failed(text, time.Now())
		}
	case r.Next != nil && m.pulled == r.Next.Digest:
		r = r.pulled()
	default:
		return
	}
	if err := m.commit(r); err != nil {
		m.cfg.Log.Error("failed to store state of bundles", zap.Error(err))
		m.setStatus(func(s *Status) { s.Waits = short(err) })
	}
}

// poll asks for the digest of the tag until ctx ends.
func (m *Manager) poll(ctx context.Context) {
	wait := retry.Backoff{First: failureWait, Max: max(maxFailureWait, m.cfg.Interval), Jitter: pollJitter}
	said := ""
	for {
		err := m.pollOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			text = short(err)
		}
		if text != said && text != "" {
			m.cfg.Log.Warn("failed to poll bundle", zap.String("ref", m.cfg.Ref), zap.String("error", text))
		}
		said = text
		m.setStatus(func(s *Status) {
			if s.PollError = text; err == nil {
				s.Polled = time.Now()
			}
		})
		next := retry.Jitter(m.cfg.Interval*9/10, pollJitter)
		if err != nil {
			next = wait.Next()
		} else {
			wait.Reset()
		}
		if !retry.Sleep(ctx, next) {
			return
		}
	}
}

// pollOnce makes one HEAD request, and offers the bundle if the tag has another digest than before.
func (m *Manager) pollOnce(ctx context.Context) error {
	digest, err := m.cfg.Registry.Resolve(ctx, m.cfg.Ref)
	if err != nil || digest == m.Status().Seen {
		return err
	}
	b, err := m.fetch(ctx, m.cfg.Ref, digest)
	switch {
	case err != nil:
	case m.Status().Place >= b.Rollout.Percent:
		err = invalid("it is for %d %% of the nodes, and this node has the place %d", b.Rollout.Percent, m.Status().Place)
	default:
		err = m.offer(ctx, b, digest)
	}
	if errors.Is(err, ErrOnTrial) {
		return nil // the digest is still new at the next poll
	}
	if !errors.Is(err, ErrInvalid) {
		return err
	}
	reason := short(err)
	return m.inTurn(ctx, func() error {
		r := m.record.refused(digest, reason, time.Now())
		r.Seen = digest
		return m.commit(r)
	})
}
