package hollow

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
)

// Annotations of pods.
const (
	// ScriptAnnotation is the script of the pod's containers. If a pod does not have it, its
	// containers run until they are terminated.
	ScriptAnnotation = "hollow.nodewright.dev/script"
	// MemoryAnnotation is the memory usage of each container, as a quantity.
	MemoryAnnotation = "hollow.nodewright.dev/memory"
)

// longestQuantity limits an annotation before it is parsed.
const longestQuantity = 32

// making lists the calls that Latency and FailureRate apply to.
var making = []string{"RunPodSandbox", "PullImage", "StartContainer"}

var errInjected = errors.New("hollow: this call was chosen to fail")

// newRuntime makes the runtime of a node.
func newRuntime(cfg Config) *critest.Runtime {
	rt := critest.New()
	rt.Lean()
	rt.OfferAll()
	rt.SetImageFS(cfg.Dir)
	rt.SetWorkload(workload)
	for _, m := range making {
		rt.Delay(m, cfg.Latency)
	}
	if cfg.FailureRate == 0 {
		return rt
	}
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(cfg.Seed, 0)) //nolint:gosec // reproducible faults, not secrets
	rt.Around(func(c critest.Call) error {
		if !slices.Contains(making, c.Method) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if dice.Float64() < cfg.FailureRate {
			return errInjected
		}
		return nil
	}, nil)
	return rt
}

// workload returns the behaviour of a container, from its pod's annotations.
func workload(pod *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) critest.Workload {
	w := critest.Workload{Steps: []string{"sleep", "forever"}}
	if script := strings.Fields(pod.GetAnnotations()[ScriptAnnotation]); len(script) > 0 {
		w.Steps = script
	}
	if text := pod.GetAnnotations()[MemoryAnnotation]; text != "" && len(text) <= longestQuantity {
		if q, err := resource.ParseQuantity(text); err == nil && q.Sign() > 0 {
			w.Memory = uint64(q.Value()) //nolint:gosec // not negative
		}
	}
	return w
}
