package images

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/retry"
)

// Service is what this package asks of an image service; *cri.Client has it.
// Both methods are called from any goroutine, and have to end with ctx: the
// Manager sets no deadline for a pull.
type Service interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Events takes what is worth telling about a pod. Event must not block: Ensure
// calls it. The words are the kubelet's.
type Events interface {
	Event(pod *v1.Pod, eventType, reason, message string)
}

// ContainerEvents is what [Events] may be beside: it takes the events of containers,
// which else are those of their pods.
type ContainerEvents interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// Config holds what a Manager needs. Service is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Service Service
	Events  Events // nobody is told

	// The back-off is counted for each pod and image: one pod with wrong
	// credentials does not hold up the others.
	Backoff    time.Duration // after a first failure, doubled by each further one; 10s
	MaxBackoff time.Duration // its limit; 5m
	// QPS and Burst bound how often a registry is asked; no bound. A pull
	// beyond them waits.
	QPS   float64
	Burst int
	// Parallel is how many pulls run at a time, and ParallelPerRegistry how
	// many of them from one registry; any number. The others wait in a queue
	// in the order in which they came; where the next one's registry has its
	// number, those behind it for other registries pass it.
	Parallel            int
	ParallelPerRegistry int
	// Records is a directory, with an absolute path, in which it is kept who
	// pulled which image (KEP-2535): a pod whose credentials are not among
	// those that an image was pulled with has to show them to the registry,
	// by a pull, though the image is there. It is made when it is needed; the
	// kubelet's is ROOT/image_manager. A record that cannot be read leads to
	// a pull; a pull that cannot be recorded is not made, unless Verify is
	// NeverVerify. "" keeps no records, and lets every pod use what is there.
	Records string
	// Verify says which images this is for; NeverVerifyPreloadedImages.
	Verify Verify
	// Allowlist is for NeverVerifyAllowlistedImages: repositories, without
	// tag and digest, or their beginnings and /* for all below. Names are
	// completed as those of images: team/* is docker.io/team/*.
	Allowlist []string
	// Keyrings are asked for credentials in order, after the pod's secrets.
	Keyrings []Keyring

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// The kubelet's back-off of image pulls.
const (
	defaultBackoff    = 10 * time.Second
	defaultMaxBackoff = 5 * time.Minute
)

// Request asks for an image. Nothing in it is changed.
type Request struct {
	// Pod is who asks. Without one, nil, there are no events, and Secrets do
	// not count.
	Pod *v1.Pod
	// Container is whose image it is, for events; "" for none, such as a volume.
	Container string
	Image     string
	Policy    v1.PullPolicy
	// Sandbox is the configuration of the pod's sandbox, for runtimes that
	// want it; it may be nil.
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are the pod's pull secrets, in order. An event and the error of a pull that fails
	// name those of Pod.Spec.ImagePullSecrets that are missing.
	Secrets []*v1.Secret
	// RuntimeHandler is that of the pod's runtime class, for runtimes that
	// keep images by it (KEP-4216); "" is the runtime's default.
	RuntimeHandler string
	// ServiceAccount is the pod's, where its UID is known. It may use what
	// was pulled for it with a token of its own, as the records say. It may be
	// nil: a PodKeyring knows those of its own.
	ServiceAccount *ServiceAccount
	// Pulling is called when Ensure begins to wait for a pull, and what it
	// returns when that is over, whatever came of it. It may be nil, and so may
	// what it returns. Neither may block.
	Pulling func() (done func())
}

// Image is an image that is there.
type Image struct {
	// Ref is what to run it by.
	Ref string
	// UID is its user if that is a number, User the name if it is not.
	UID  *int64
	User string
	// Size is in bytes; 0 if the runtime does not tell.
	Size uint64
	// Pinned asks that the image be spared when images are removed.
	Pinned bool
}

// Reasons of errors, as the waiting state of a container shows them. They are
// the kubelet's words, by which tools look for them. All but InvalidImageName
// may pass by themselves.
const (
	ReasonInvalidName  = "InvalidImageName"
	ReasonInspect      = "ImageInspectError"
	ReasonNeverPull    = "ErrImageNeverPull"
	ReasonPull         = "ErrImagePull"
	ReasonPullBackOff  = "ImagePullBackOff"
	ReasonUnavailable  = "RegistryUnavailable"
	ReasonBadSignature = "SignatureValidationFailed"
)

// Error is why an image is not there. Ensure returns no other kind, but for the
// error of a ctx that has ended.
type Error struct {
	reason string
	text   string
	until  time.Time
	err    error
}

// Error implements error.
func (e *Error) Error() string { return e.text }

// Unwrap returns the image service's error, if that was the cause.
func (e *Error) Unwrap() error { return e.err }

// Reason is one of the Reason constants.
func (e *Error) Reason() string { return e.reason }

// RetryAt is when the pull is tried again; zero if nothing holds it back.
func (e *Error) RetryAt() time.Time { return e.until }

// Manager gets images. Its methods may be called from any goroutine.
type Manager struct {
	cfg   Config
	met   *metrics
	limit *rate.Limiter
	queue *queue

	// policy and records decide whether an image that is here may be used.
	policy  policy
	records *records // nil without Config.Records
	// recovering is held by who recovers pulls, and guards recoverAt: not to
	// be tried again before.
	recovering chan struct{}
	recoverAt  time.Time

	// mu guards the maps and the parts of a flight that are marked. It is taken
	// before that of the queue, and never held across a call of the runtime.
	mu sync.Mutex
	// Entries of failed outlive their back-off by twice the longest one, so that
	// the delay goes on growing for a pod that keeps asking.
	failed  map[backoffKey]*backoff
	flights map[string]*flight
}

// backoffKey is what failures are counted by. The pod's UID is empty for
// requests without a pod: these share their back-off.
type backoffKey struct {
	pod     string
	image   string
	handler string
}

// backoff is how a pod's pulls of one image have failed. It is guarded by
// Manager.mu.
type backoff struct {
	pod      Waiter
	failures int // in a row
	// delay is the latest wait, from which the next one follows; until is its end,
	// and last the error in words.
	delay time.Duration
	until time.Time
	last  string
}

// New checks cfg and returns a Manager. A Manager has goroutines only for pulls that a caller
// waits for.
func New(cfg Config) (*Manager, error) {
	if cfg.Backoff == 0 {
		cfg.Backoff = defaultBackoff
	}
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = defaultMaxBackoff
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Service == nil {
		errs = append(errs, errors.New("Config.Service is required"))
	}
	if cfg.Backoff < 0 || cfg.MaxBackoff < cfg.Backoff {
		errs = append(errs, fmt.Errorf("Config.Backoff %v and MaxBackoff %v: want positive durations, the second not below the first", cfg.Backoff, cfg.MaxBackoff))
	}
	if cfg.QPS < 0 || cfg.Burst < 0 || cfg.Parallel < 0 || cfg.ParallelPerRegistry < 0 {
		errs = append(errs, fmt.Errorf("Config.QPS %v, Burst %d, Parallel %d and ParallelPerRegistry %d: want 0 (no bound) or more",
			cfg.QPS, cfg.Burst, cfg.Parallel, cfg.ParallelPerRegistry))
	}
	policy, err := newPolicy(cfg.Verify, cfg.Allowlist)
	if err != nil {
		errs = append(errs, err)
	}
	// A relative path would depend on the directory that the agent was started in.
	switch {
	case cfg.Records != "" && !filepath.IsAbs(cfg.Records):
		errs = append(errs, fmt.Errorf("Config.Records %q: want an absolute path, or none", cfg.Records))
	case cfg.Records == "" && cfg.Verify != "" && cfg.Verify != NeverVerify:
		errs = append(errs, fmt.Errorf("Config.Records is required for Config.Verify %s", cfg.Verify))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	m := &Manager{
		cfg: cfg, met: met, queue: newQueue(cfg.Parallel, cfg.ParallelPerRegistry),
		policy: policy, recovering: make(chan struct{}, 1),
		failed: map[backoffKey]*backoff{}, flights: map[string]*flight{},
	}
	if cfg.Records != "" {
		m.records = newRecords(cfg.Records, cfg.Log, met)
	}
	// A limiter without a burst would never let anything pass.
	if cfg.QPS > 0 {
		m.limit = rate.NewLimiter(rate.Limit(cfg.QPS), max(cfg.Burst, 1))
	}
	return m, nil
}

// normalize adds the tag latest where there is neither tag nor digest, and
// refuses what is no image reference. The name stays as short as it is.
func normalize(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// nobody stands for the pod of a request that has none, so that what follows
// need not look for nil. It is compared by address.
var nobody = &v1.Pod{}

// Ensure returns when the image is on the node, or with an error when it cannot be pulled now. It
// blocks for the time of the pull, or until ctx ends. The error is an *Error, or that of ctx. It
// may be called from any goroutine; callers for the same image with the same credentials share
// one pull.
func (m *Manager) Ensure(ctx context.Context, r Request) (Image, error) {
	if r.Pod == nil {
		r.Pod, r.Secrets = nobody, nil
	}
	name, err := normalize(r.Image)
	if err != nil {
		m.event(r, v1.EventTypeWarning, "InspectFailed", fmt.Sprintf("Failed to apply default image tag %q: %v", r.Image, err))
		return Image{}, &Error{reason: ReasonInvalidName, text: fmt.Sprintf("invalid image name %q: %v", r.Image, err), err: err}
	}
	spec := &runtimeapi.ImageSpec{Image: name, RuntimeHandler: r.RuntimeHandler}
	// Before any decision: a pull that a crash cut short may have left an image of
	// which no record says whom it is for.
	if m.records != nil {
		m.recoverPulls(ctx)
	}
	// The look at what is here would change nothing for PullAlways.
	if r.Policy != v1.PullAlways {
		img, err := m.status(ctx, spec)
		if err != nil && ctx.Err() != nil {
			return Image{}, ctx.Err() // nobody wants to know
		}
		if err != nil {
			m.event(r, v1.EventTypeWarning, "InspectFailed", fmt.Sprintf("Failed to inspect image %q: %v", r.Image, err))
			return Image{}, &Error{reason: ReasonInspect, text: fmt.Sprintf("failed to inspect image %q: %v", r.Image, err), err: err}
		}
		use := img != nil && m.mayUse(ctx, r, name, img)
		m.met.ensure.WithLabelValues(policyLabel(r.Policy), boolLabel(img != nil), boolLabel(!use)).Inc()
		if use {
			m.event(r, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", r.Image))
			return *img, nil
		}
		if r.Policy == v1.PullNever {
			// The same for an image that is there and not for this pod, so
			// that nobody learns of it.
			text := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
			m.event(r, v1.EventTypeWarning, ReasonNeverPull, text)
			return Image{}, &Error{reason: ReasonNeverPull, text: text}
		}
	} else {
		m.met.ensure.WithLabelValues(policyLabel(r.Policy), "unknown", "true").Inc()
	}
	return m.pull(ctx, r, name, spec)
}

// status returns the image, or nil if it is not there. An answer without an
// image is how the CRI says that there is none.
func (m *Manager) status(ctx context.Context, spec *runtimeapi.ImageSpec) (*Image, error) {
	resp, err := m.cfg.Service.ImageStatus(ctx, spec, false)
	if err != nil || resp.GetImage() == nil {
		return nil, err
	}
	i := resp.GetImage()
	img := &Image{Ref: i.GetId(), User: i.GetUsername(), Size: i.GetSize(), Pinned: i.GetPinned()}
	if u := i.GetUid(); u != nil {
		uid := u.GetValue()
		img.UID = &uid
	}
	return img, nil
}

// missingSecrets are the names of the pull secrets that the pod wants and that are not there.
func (r *Request) missingSecrets() (names []string) {
	if r.Pod == nil {
		return nil
	}
	for _, ref := range r.Pod.Spec.ImagePullSecrets {
		if !slices.ContainsFunc(r.Secrets, func(s *v1.Secret) bool { return s.Name == ref.Name }) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// pull pulls the image unless a recent failure holds it back. Time that passes
// in the queue is not limited here: the caller's ctx does that.
func (m *Manager) pull(ctx context.Context, r Request, name string, spec *runtimeapi.ImageSpec) (Image, error) {
	key := backoffKey{pod: string(r.Pod.UID), image: name, handler: r.RuntimeHandler}
	m.mu.Lock()
	if b := m.failed[key]; b != nil && time.Now().Before(b.until) {
		until, last := b.until, b.last
		m.mu.Unlock()
		m.event(r, v1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", r.Image))
		return Image{}, &Error{
			reason: ReasonPullBackOff, until: until,
			text: fmt.Sprintf("Back-off pulling image %q: %s", r.Image, last),
		}
	}
	m.mu.Unlock()

	// Only now: a pod that is held back needs no credentials.
	creds, skipped, err := lookup(name, r.Secrets)
	missing := strings.Join(r.missingSecrets(), ", ")
	if missing != "" {
		m.event(Request{Pod: r.Pod}, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", missing))
	}
	if skipped != nil {
		m.event(Request{Pod: r.Pod}, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", skipped.Error())
	}
	if err != nil {
		return Image{}, m.note(r, key, err)
	}
	// A keyring that fails costs its own credentials only; the image may be
	// public.
	for _, k := range m.cfg.Keyrings {
		more, err := credentialsOf(ctx, k, name, r.Pod)
		if err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("image credentials are missing", zap.String("image", name), zap.Error(err))
		}
		creds = append(creds, more...)
	}
	m.event(r, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	start := time.Now()
	got, err := m.joinTold(ctx, spec, creds, r)
	if err != nil {
		// A caller that gave up is no failure of the registry, and is not counted.
		if ctx.Err() != nil {
			return Image{}, ctx.Err()
		}
		if missing != "" {
			err = fmt.Errorf("%w; pull secrets that are not there: %s", err, missing)
		}
		return Image{}, m.note(r, key, err)
	}
	m.mu.Lock()
	delete(m.failed, key)
	m.mu.Unlock()
	// The time includes that in the queue.
	took := time.Since(start)
	m.event(r, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v", r.Image, took.Round(time.Millisecond)))
	switch {
	case got.unseen != nil:
		return Image{}, &Error{reason: ReasonInspect, text: fmt.Sprintf("failed to inspect image %q: %v", r.Image, got.unseen), err: got.unseen}
	case got.image == nil:
		return Image{}, &Error{reason: ReasonPull, text: fmt.Sprintf("image %q is gone right after it was pulled", r.Image)}
	}
	return *got.image, nil
}

// note counts a failed pull and says what is to be made of it. It sends the
// event, and returns an *Error that bears the time of the next try.
func (m *Manager) note(r Request, key backoffKey, err error) error {
	text := callerror.Shown(err)
	m.event(r, v1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", r.Image, text))
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, b := range m.failed { // those nobody has asked for again
		if now.Sub(b.until) > 2*m.cfg.MaxBackoff {
			delete(m.failed, k)
		}
	}
	b := m.failed[key]
	if b == nil {
		b = &backoff{pod: Waiter{r.Pod.UID, r.Pod.Namespace, r.Pod.Name}}
		m.failed[key] = b
	}
	b.failures++
	b.delay = retry.Backoff{First: m.cfg.Backoff, Max: m.cfg.MaxBackoff}.Following(b.delay)
	b.until, b.last = now.Add(b.delay), pullReason(err)+": "+text
	return &Error{reason: pullReason(err), text: text, until: b.until, err: err}
}

// Retain forgets the failed pulls of the pods that keep denies. keep must not
// call the Manager. It is to be called when pods have gone; without it entries
// go by their age.
func (m *Manager) Retain(keep func(types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.failed {
		if !keep(types.UID(key.pod)) {
			delete(m.failed, key)
		}
	}
}

// event sends an event of the container if Events can take that, else of the
// pod. A request without a pod has none.
func (m *Manager) event(r Request, eventType, reason, message string) {
	if m.cfg.Events == nil || r.Pod == nobody {
		return
	}
	if c, ok := m.cfg.Events.(ContainerEvents); ok && r.Container != "" {
		c.ContainerEvent(r.Pod, r.Container, eventType, reason, message)
		return
	}
	m.cfg.Events.Event(r.Pod, eventType, reason, message)
}
