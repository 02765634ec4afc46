package podruntime

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

func join(m map[string]float64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(parts, " ")
}

// An event names the container and not the instance: otherwise each of its
// failures would be another event.
func TestEventsNameTheContainer(t *testing.T) {
	log := &events{}
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "app")
	m := manager(t, r)
	m.cfg.Events = log
	r.fail["StartContainer"] = fmt.Errorf("start container app-0-s0: no such file; app-0-s0 stays")
	res := m.Sync(t.Context(), request(t, w, r.look()))
	if res.Err() == nil || !strings.Contains(res.Err().Error(), "app-0-s0") {
		t.Errorf("the error has lost the ID: %v", res.Err())
	}
	if want := []string{"Failed: Error: start container app: no such file; app stays"}; !slices.Equal(log.warnings, want) {
		t.Errorf("events %q, want %q", log.warnings, want)
	}

	// One that was never started, and cannot be replaced.
	log.warnings = nil
	m = manager(t, r)
	m.cfg.Events = log
	r.pod.Containers[0].State = observed.Created
	r.fail["RemoveContainer"] = fmt.Errorf("app-0-s0 is busy")
	m.Sync(t.Context(), request(t, w, r.look()))
	if len(log.warnings) != 1 || strings.Contains(log.warnings[0], "app-0-s0") || !strings.Contains(log.warnings[0], "app is busy") {
		t.Errorf("events %q", log.warnings)
	}
}
