package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// eventStream is a runtime whose stream of events opens, or not, and ends.
type eventStream struct {
	criapi.RuntimeService
	opens bool
}

var errEnded = errors.New("it has ended")

func (s eventStream) GetContainerEvents(_ context.Context, _ chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	if s.opens && opened != nil {
		opened(nil)
	}
	return errEnded
}

func TestTheRuntimeIsWatched(t *testing.T) {
	for _, opens := range []bool{true, false} {
		told, opened, want := 0, 0, 0
		if opens {
			want = 2 // its begin and its end
		}
		w := watchedRuntime{eventStream{opens: opens}, func() { told++ }}
		err := w.GetContainerEvents(t.Context(), nil, func(runtimeapi.RuntimeService_GetContainerEventsClient) { opened++ })
		if !errors.Is(err, errEnded) || told != want || opened != want/2 {
			t.Errorf("opens %t: told %d times, want %d; %d opened (%v)", opens, told, want, opened, err)
		}
		if err := w.GetContainerEvents(t.Context(), nil, nil); !errors.Is(err, errEnded) || told != 2*want {
			t.Errorf("opens %t, and nobody asks: told %d times (%v)", opens, told, err)
		}
	}
}

// imageStore is an image service that does what it is asked to, or fails.
type imageStore struct {
	criapi.ImageManagerService
	err error
}

func (s imageStore) PullImage(context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return "sha256:1", s.err
}
func (s imageStore) RemoveImage(context.Context, *runtimeapi.ImageSpec) error { return s.err }

func TestImagesAreWatched(t *testing.T) {
	for _, fails := range []error{nil, errEnded} {
		told, want := 0, 2
		if fails != nil {
			want = 0
		}
		w := watchedImages{imageStore{err: fails}, func() { told++ }}
		ref, err := w.PullImage(t.Context(), nil, nil, nil)
		if ref != "sha256:1" || !errors.Is(err, fails) || !errors.Is(w.RemoveImage(t.Context(), nil), fails) || told != want {
			t.Errorf("told %d times, want %d; %q, %v", told, want, ref, err)
		}
	}
}

// What is declared follows the gates, and the server that one of the features needs.
func TestDeclaredFeatures(t *testing.T) {
	for _, tc := range []struct {
		server bool
		gates  map[string]bool
		want   string // "-": nobody declares
	}{
		{true, nil, "ExtendWebSocketsToKubelet InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits"},
		{false, nil, "InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits"},
		{true, map[string]bool{"ExtendWebSocketsToKubelet": false, "InPlacePodVerticalScalingInitContainers": true}, "InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits"},
		{true, map[string]bool{"NodeDeclaredFeatures": false}, "-"},
	} {
		c := &kubeletconfig.Config{}
		c.EnableServer, c.FeatureGates = &tc.server, tc.gates
		got := declared(c)
		if (got == nil) != (tc.want == "-") || got != nil && strings.Join(got, " ") != tc.want || !slices.IsSorted(got) {
			t.Errorf("server %t, gates %v: %v", tc.server, tc.gates, got)
		}
	}
}

// The machine's start is that of the kernel, or not known.
func TestBooted(t *testing.T) {
	for text, want := range map[string]int64{
		"cpu 1 2\nbtime 1700000000\nprocesses 7\n": 1700000000, "cpu 1\n": 0, "btime x\n": 0, "btime -3\n": 0, "xbtime 5\n": 0,
	} {
		got := booted(t.Context(), kernel.At(fstest.MapFS{"proc/stat": {Data: []byte(text)}}))
		if want == 0 && !got.IsZero() || want != 0 && got.Unix() != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if got := booted(t.Context(), kernel.At(fstest.MapFS{})); !got.IsZero() {
		t.Errorf("without the file: %v", got)
	}
}
