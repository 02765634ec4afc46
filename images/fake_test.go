package images_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

// registry is an image service with a registry behind it that has every image.
type registry struct {
	took    time.Duration                                           // by a pull
	each    func(image string) time.Duration                        // by a pull of that image; took
	late    time.Duration                                           // delay of the answer of ImageStatus
	size    uint64                                                  // of each image
	refuse  func(image string, auth *runtimeapi.AuthConfig) error   // why a pull fails; none does
	inspect func(image string, had *runtimeapi.Image) (bool, error) // replaces the check whether the image exists

	mu        sync.Mutex
	here      map[string]*runtimeapi.Image
	pulls     []string // image and user of each
	at        []time.Time
	cancelled int
	now, most int            // pulls at a time
	nowOf     map[string]int // by host
	mostOf    map[string]int
}

func (r *registry) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	defer time.Sleep(r.late)
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.here[kept(image)]
	if r.inspect != nil {
		if tell, err := r.inspect(image.Image, have); err != nil || !tell {
			return &runtimeapi.ImageStatusResponse{}, err
		}
	}
	return &runtimeapi.ImageStatusResponse{Image: have}, nil
}

func (r *registry) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls = append(r.pulls, strings.TrimSpace(kept(image)+" "+auth.GetUsername()))
	r.at = append(r.at, time.Now())
	r.now++
	r.most = max(r.most, r.now)
	if r.nowOf == nil {
		r.nowOf, r.mostOf = map[string]int{}, map[string]int{}
	}
	host, _, _ := strings.Cut(image.Image, "/")
	r.nowOf[host]++
	r.mostOf[host] = max(r.mostOf[host], r.nowOf[host])
	took := r.took
	if r.each != nil {
		took = r.each(image.Image)
	}
	r.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	r.nowOf[host]--
	if err := ctx.Err(); err != nil {
		r.cancelled++
		return "", err
	}
	if r.refuse != nil {
		if err := r.refuse(image.Image, auth); err != nil {
			return "", err
		}
	}
	r.put(kept(image))
	return r.here[kept(image)].Id, nil
}

// kept is what an image is kept by: with a runtime handler it is another one.
func kept(image *runtimeapi.ImageSpec) string {
	if h := image.GetRuntimeHandler(); h != "" {
		return image.GetImage() + " on " + h
	}
	return image.GetImage()
}

// put makes an image present.
func (r *registry) put(names ...string) {
	if r.here == nil {
		r.here = map[string]*runtimeapi.Image{}
	}
	for _, n := range names {
		r.here[n] = &runtimeapi.Image{Id: "sha256-of-" + n, Uid: &runtimeapi.Int64Value{Value: 33}, Size: r.size}
	}
}

// pulled are the pulls so far.
func (r *registry) pulled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulls)
}

// events stores the reported events.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Event(_ *v1.Pod, eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf("%s %s: %s", eventType, reason, message))
}

// take returns the events reported since the last call.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

func newManager(t testing.TB, cfg images.Config) *images.Manager {
	t.Helper()
	m, err := images.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// want is a request of the pod with that UID.
func want(uid, image string, policy v1.PullPolicy, secrets ...*v1.Secret) images.Request {
	return images.Request{
		Pod:   &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "pod-" + uid, UID: types.UID(uid)}},
		Image: image, Policy: policy, Secrets: secrets,
	}
}

// pullSecret is one with a user for registry.example.
func pullSecret(user string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "of-" + user},
		StringData: map[string]string{v1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{"registry.example":{"username":%q,"password":"x"}}}`, user)},
	}
}

// reason returns the reason of an error, "" if there is none.
func reason(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := err.(*images.Error) //nolint:errorlint // want this type
	if !ok {
		t.Fatalf("%T is no *images.Error: %v", err, err)
	}
	return e.Reason()
}
