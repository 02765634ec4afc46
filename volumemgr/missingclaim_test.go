package volumemgr_test

import (
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// A pod whose claim is missing hears of it, although nothing is mounted that could
// fail.
func TestMissingClaimIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		pod := newPod("u", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "none"},
		}})
		_, err := r.Mount(t.Context(), pod)
		if want := []string{"Warning FailedMount Unable to attach or mount volumes: " + err.Error()}; !slices.Equal(r.events.all, want) {
			t.Errorf("events %q, want %q", r.events.all, want)
		}
	})
}
