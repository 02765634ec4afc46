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

// Service is the part of an image service that this package uses; *cri.Client implements it.
// Methods are called from any goroutine and must return when ctx ends: the Manager sets no
// deadline for a pull.
type Service interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Progress is an optional interface of [Service]. PullProgress returns how many bytes of an image have
// been received and how many it has, while PullImage pulls it under the same name. Both are 0 if that
// is not known. It must not block.
type Progress interface {
	PullProgress(image string) (received, total int64)
}

// Events records events of pods, with the kubelet's reasons and messages. Event must not block:
// Ensure calls it.
type Events interface {
	Event(pod *v1.Pod, eventType, reason, message string)
}

// ContainerEvents is an optional interface of [Events] for events of containers. Without it,
// they are events of their pods.
type ContainerEvents interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// Config holds what a Manager needs. Service is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Service Service
	Events  Events // if nil, no events are recorded

	// QPS and Burst limit the rate of pulls; pulls above the rate wait. If QPS is 0, there is no
	// limit.
	QPS   float64
	Burst int
	// Parallel limits the number of concurrent pulls. ParallelPerRegistry limits those from one
	// registry. Further pulls wait in a queue, first come, first served. A pull whose registry
	// has reached its limit does not block pulls from other registries. 0 means no limit.
	Parallel            int
	ParallelPerRegistry int
	// Records is the absolute path of a directory with records of pulls (KEP-2535). A pod may use
	// a present image only if a record has the pod's credentials. Otherwise the image is pulled
	// again with them, so that the registry decides. The directory is created on demand; the
	// kubelet's is ROOT/image_manager. An unreadable record leads to another pull. If a pull
	// cannot be recorded, it is not started, unless Verify is NeverVerify. If Records is "",
	// there are no records, and every pod may use every present image.
	Records string
	// Verify selects the images whose use is verified with Records. The default is
	// NeverVerifyPreloadedImages.
	Verify Verify
	// Allowlist has the images that NeverVerifyAllowlistedImages exempts: repositories without
	// tag and digest, or prefixes that end in /*. Short names are expanded like those of images:
	// team/* means docker.io/team/*.
	Allowlist []string
	// Keyrings provide further credentials, which are tried in order after the pod's secrets.
	Keyrings []Keyring

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// The kubelet's back-off of image pulls. Each pair of pod and image has its own, so that a pod with
// wrong credentials does not delay others.
const (
	firstBackoff = 10 * time.Second // after a first failure; each further failure doubles it
	maxBackoff   = 5 * time.Minute
)

// Request describes an image to make available. Nothing in it is changed.
type Request struct {
	// Pod is the pod that needs the image. If it is nil there are no events, and Secrets are
	// ignored.
	Pod *v1.Pod
	// Container is the name of the container, for events. It is "" for an image volume.
	Container string
	Image     string
	Policy    v1.PullPolicy
	// Sandbox is the configuration of the pod's sandbox, which some runtimes use for the pull. It
	// may be nil.
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are the pod's pull secrets, in order. If a pull fails, the event and the error name
	// the missing ones of Pod.Spec.ImagePullSecrets.
	Secrets []*v1.Secret
	// RuntimeHandler is the handler of the pod's runtime class, for runtimes with separate images
	// per handler (KEP-4216). "" is the runtime's default.
	RuntimeHandler string
	// ServiceAccount is the pod's service account, or nil if its UID is unknown. The pod may use
	// images that were pulled with a token of this account. A PodKeyring returns the pod's
	// accounts itself.
	ServiceAccount *ServiceAccount
	// Pulling is called when Ensure begins to wait for a pull; done is called when the wait
	// ends, also after an error. Both may be nil, and must not block.
	Pulling func() (done func())
}

// Image describes an image on the node: how to create containers with it, and its size.
type Image struct {
	// Ref is the reference to create containers with.
	Ref string
	// UID is the image's user if the image names a number. Otherwise UID is nil and User is the
	// user's name.
	UID  *int64
	User string
	// Size is the size in bytes. It is 0 if the runtime does not report it.
	Size uint64
	// Pinned means that garbage collection must keep the image.
	Pinned bool
}

// Reasons of errors, for the waiting state of a container. They are the kubelet's. All but
// InvalidImageName may be temporary.
const (
	ReasonInvalidName  = "InvalidImageName"
	ReasonInspect      = "ImageInspectError"
	ReasonNeverPull    = "ErrImageNeverPull"
	ReasonPull         = "ErrImagePull"
	ReasonPullBackOff  = "ImagePullBackOff"
	ReasonUnavailable  = "RegistryUnavailable"
	ReasonBadSignature = "SignatureValidationFailed"
)

// Error is the error type of Ensure, except for the error of a ctx that has ended.
type Error struct {
	reason string
	text   string
	until  time.Time
	err    error
}

// Error implements error.
func (e *Error) Error() string { return e.text }

// Unwrap returns the image service's error if it was the cause, or else nil.
func (e *Error) Unwrap() error { return e.err }

// Reason returns one of the Reason constants.
func (e *Error) Reason() string { return e.reason }

// RetryAt returns the time of the next attempt. It is zero if there is no back-off.
func (e *Error) RetryAt() time.Time { return e.until }

// Manager pulls images and decides which pods may use them. Its methods may be called from any
// goroutine.
type Manager struct {
	cfg   Config
	met   *metrics
	limit *rate.Limiter
	queue *queue

	// policy and records decide whether a pod may use an image that is on the node.
	policy  policy
	records *records // nil if Config.Records is not set
	// recovering is the lock of recoverPulls, a channel so that ctx can end the wait. It guards
	// recoverAt, the earliest time of the next recovery.
	recovering chan struct{}
	recoverAt  time.Time

	// mu guards the maps and the marked fields of flights. It is locked before the queue's lock,
	// and never held during a call to the runtime.
	mu sync.Mutex
	// failed has the back-offs. An entry stays for twice maxBackoff after its back-off, so that the
	// delay of repeated failures grows.
	failed  map[backoffKey]*backoff
	flights map[string]*flight
}

// backoffKey identifies a back-off. Requests without a pod have an empty UID and share their
// back-off.
type backoffKey struct {
	pod     string
	image   string
	handler string
}

// backoff is the back-off of one pod and image. Manager.mu guards it.
type backoff struct {
	pod      Waiter
	failures int // consecutive
	// delay is the current delay, which ends at the time until. last is the text of the last
	// error.
	delay time.Duration
	until time.Time
	last  string
}

// New checks cfg and returns a Manager. A Manager has goroutines only for pulls that a caller
// waits for.
func New(cfg Config) (*Manager, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Service == nil {
		errs = append(errs, errors.New("Config.Service is required"))
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
	// A limiter with a burst of 0 would allow no pull at all.
	if cfg.QPS > 0 {
		m.limit = rate.NewLimiter(rate.Limit(cfg.QPS), max(cfg.Burst, 1))
	}
	return m, nil
}

// normalize validates an image reference, and adds the tag latest if it has neither tag nor
// digest. It does not expand short names.
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

// nobody replaces a nil Request.Pod, so that no nil checks are needed. It is recognized by its
// address.
var nobody = &v1.Pod{}

// Ensure returns when the image is on the node. It returns an error if the image cannot be pulled
// now, or ctx ends: an *Error or ctx's error. It blocks for the time of the pull. It may be
// called from any goroutine; callers for the same image with the same credentials share one pull.
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
	// Recovery comes first, since a pull that a crash interrupted may have left an image without
	// a record.
	if m.records != nil {
		m.recoverPulls(ctx)
	}
	// PullAlways pulls whether or not the image is present.
	if r.Policy != v1.PullAlways {
		img, err := m.status(ctx, spec)
		if err != nil && ctx.Err() != nil {
			return Image{}, ctx.Err() // ctx has ended
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
			// The same text for an image that is present but not allowed, so that the pod does
			// not learn that it is present.
			text := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
			m.event(r, v1.EventTypeWarning, ReasonNeverPull, text)
			return Image{}, &Error{reason: ReasonNeverPull, text: text}
		}
	} else {
		m.met.ensure.WithLabelValues(policyLabel(r.Policy), "unknown", "true").Inc()
	}
	return m.pull(ctx, r, name, spec)
}

// status returns the image, or nil if it is not present. The CRI's answer has no image then.
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

// missingSecrets returns the names of the pod's pull secrets that do not exist.
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

// pull pulls the image unless it is in back-off. Only ctx limits the time in the queue.
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

	// Looked up only now, since a pod in back-off needs no credentials.
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
	// If a keyring fails, the pull continues without its credentials: the image may be public.
	for _, k := range m.cfg.Keyrings {
		more, err := credentialsOf(ctx, k, name, r.Pod)
		if err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("failed to get image credentials", zap.String("image", name), zap.Error(err))
		}
		creds = append(creds, more...)
	}
	m.event(r, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	start := time.Now()
	got, err := m.joinTold(ctx, spec, creds, r)
	if err != nil {
		// A cancelled call is not the registry's failure, so it is not counted.
		if ctx.Err() != nil {
			return Image{}, ctx.Err()
		}
		if missing != "" {
			err = fmt.Errorf("%w; missing pull secrets: %s", err, missing)
		}
		return Image{}, m.note(r, key, err)
	}
	m.mu.Lock()
	delete(m.failed, key)
	m.mu.Unlock()
	m.event(r, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		r.Image, got.took.Truncate(time.Millisecond), time.Since(start).Truncate(time.Millisecond), got.size))
	switch {
	case got.unseen != nil:
		return Image{}, &Error{reason: ReasonInspect, text: fmt.Sprintf("failed to inspect image %q: %v", r.Image, got.unseen), err: got.unseen}
	case got.image == nil:
		return Image{}, &Error{reason: ReasonPull, text: fmt.Sprintf("image %q is gone right after it was pulled", r.Image)}
	}
	return *got.image, nil
}

// note counts a failed pull, sends the event, and returns an *Error with the time of the next
// attempt.
func (m *Manager) note(r Request, key backoffKey, err error) error {
	text := callerror.Shown(err)
	m.event(r, v1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", r.Image, text))
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, b := range m.failed { // entries that are no longer requested
		if now.Sub(b.until) > 2*maxBackoff {
			delete(m.failed, k)
		}
	}
	b := m.failed[key]
	if b == nil {
		b = &backoff{pod: Waiter{r.Pod.UID, r.Pod.Namespace, r.Pod.Name}}
		m.failed[key] = b
	}
	b.failures++
	b.delay = retry.Backoff{First: firstBackoff, Max: maxBackoff}.Following(b.delay)
	b.until, b.last = now.Add(b.delay), pullReason(err)+": "+text
	return &Error{reason: pullReason(err), text: text, until: b.until, err: err}
}

// Retain drops the back-off of all pods for which keep returns false. Call it when pods are
// gone; otherwise entries expire. keep must not call the Manager.
func (m *Manager) Retain(keep func(types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.failed {
		if !keep(types.UID(key.pod)) {
			delete(m.failed, key)
		}
	}
}

// event records an event of the container, or of the pod if Events does not implement
// ContainerEvents. Without a pod it does nothing.
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
