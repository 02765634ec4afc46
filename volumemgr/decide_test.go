package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The state of a mount after a failed operation, as in the kubelet.
func TestAfter(t *testing.T) {
	for _, tc := range []struct {
		was   presence
		class class
		found bool
		want  presence
	}{
		{absent, maybe, false, uncertain},
		{absent, unchanged, false, absent},
		{absent, failedForSure, false, absent},
		{uncertain, maybe, false, uncertain},
		{uncertain, unchanged, false, uncertain},
		{uncertain, failedForSure, false, absent},
		{uncertain, maybe, true, uncertain},
		{uncertain, unchanged, true, uncertain},
		{uncertain, failedForSure, true, uncertain}, // a reconstructed volume is not forgotten
		{present, maybe, false, present},
		{present, unchanged, false, present},
		{present, failedForSure, false, present},
		{absent, succeeded, false, present},
		{uncertain, succeeded, false, present},
		{uncertain, succeeded, true, present},
		{present, succeeded, false, present},
	} {
		if got := after(tc.was, tc.class, tc.found); got != tc.want {
			t.Errorf("after(%v, %v, found=%v) = %v, want %v", tc.was, tc.class, tc.found, got, tc.want)
		}
	}
}

func TestClassify(t *testing.T) {
	plain := errors.New("no such server")
	for _, tc := range []struct {
		err   error
		ended bool
		want  class
	}{
		{nil, false, succeeded},
		{nil, true, succeeded},
		{plain, false, failedForSure},
		{plain, true, maybe},
		{context.DeadlineExceeded, true, maybe},
		{ErrUncertain, false, maybe},
		{fmt.Errorf("mount: %w", ErrUncertain), false, maybe}, // wrapping hides nothing
		{fmt.Errorf("mount: %w: %w", ErrTransient, plain), false, unchanged},
		{ErrTransient, true, maybe},
	} {
		if got := classify(tc.err, tc.ended); got != tc.want {
			t.Errorf("classify(%v, ended=%v) = %v, want %v", tc.err, tc.ended, got, tc.want)
		}
	}
}

func TestConflicts(t *testing.T) {
	vol, a, b := key{"v", ""}, key{"v", "a"}, key{"v", "b"}
	for _, tc := range []struct {
		a, b key
		want bool
	}{
		{key{}, key{}, false}, // no volume never conflicts
		{key{"", "a"}, key{"", "a"}, false},
		{key{}, vol, false},
		{vol, vol, true},
		{vol, a, true},
		{a, vol, true},
		{a, a, true},
		{a, b, false},
		{vol, key{"w", ""}, false},
		{a, key{"w", "a"}, false},
	} {
		if got := conflicts(tc.a, tc.b); got != tc.want {
			t.Errorf("conflicts(%v, %v) = %v, want %v", tc.a, tc.b, got, tc.want)
		}
		if got := conflicts(tc.b, tc.a); got != tc.want {
			t.Errorf("conflicts(%v, %v) = %v, want %v", tc.b, tc.a, got, tc.want)
		}
	}
}

func TestDelay(t *testing.T) {
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
		16 * time.Second, 32 * time.Second, 64 * time.Second, 122 * time.Second, 122 * time.Second}
	for i, w := range want {
		if got := delay(i + 1); got != w {
			t.Errorf("delay(%d) = %v, want %v", i+1, got, w)
		}
	}
	if got := delay(1 << 20); got != backoffMax {
		t.Errorf("delay of very many failures = %v, want %v", got, backoffMax)
	}
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name string
		view view
		want action
	}{
		{"new", view{desired: true}, action{do: setUp}},
		{"mounted", view{desired: true, has: present}, action{}},
		{"content changed", view{desired: true, has: present, stale: true}, action{do: setUp}},
		{"may be mounted", view{desired: true, has: uncertain}, action{do: setUp}},
		{"device first", view{desired: true, device: true}, action{do: needDevice}},
		{"device may be mounted", view{desired: true, device: true, deviceHas: uncertain}, action{do: needDevice}},
		{"device is there", view{desired: true, device: true, deviceHas: present}, action{do: setUp}},
		{"another operation on the device", view{desired: true, device: true, deviceHas: present, conflict: true}, action{}},
		{"back-off", view{desired: true, failed: opSetUp, wait: time.Second}, action{do: wait, wait: time.Second}},
		{"back-off over", view{desired: true, failed: opSetUp}, action{do: setUp}},
		{"back-off of another operation", view{desired: true, has: uncertain, failed: opTearDown, wait: time.Second}, action{do: setUp}},
		{"back-off of a refresh", view{desired: true, has: present, stale: true, failed: opSetUp, wait: time.Second}, action{do: wait, wait: time.Second}},
		{"nobody waits any more", view{desired: true, has: uncertain, abandoned: true}, action{}},
		{"mounted and nobody waits", view{desired: true, has: present, stale: true, abandoned: true}, action{do: setUp}},
		{"nobody waits for its set-up any more", view{desired: true, running: opSetUp, abandoned: true}, action{do: cancel}},
		{"nobody waits for its refresh any more", view{desired: true, has: present, running: opSetUp, abandoned: true}, action{}},
		{"being set up", view{desired: true, running: opSetUp}, action{}},
		{"being torn down, wanted again", view{desired: true, has: uncertain, running: opTearDown}, action{}},

		{"unwanted and absent", view{}, action{do: forget}},
		{"unwanted", view{has: present}, action{do: tearDown}},
		{"unwanted, may be mounted", view{has: uncertain}, action{do: tearDown}},
		{"unwanted, stale", view{has: present, stale: true}, action{do: tearDown}},
		{"unwanted while it is set up", view{running: opSetUp}, action{do: cancel}},
		{"unwanted and told to stop", view{running: opSetUp, canceled: true}, action{}},
		{"unwanted, being torn down", view{has: uncertain, running: opTearDown}, action{}},
		{"unwanted, another operation on it", view{has: present, busy: true}, action{}},
		{"a set-up's back-off is none for a tear-down", view{has: uncertain, failed: opSetUp, wait: time.Minute}, action{do: tearDown}},
		{"tear-down's back-off", view{has: uncertain, failed: opTearDown, wait: time.Second}, action{do: wait, wait: time.Second}},
		{"nobody has spoken for it", view{has: uncertain, kept: true}, action{}},
	} {
		if got := decide(tc.view); got != tc.want {
			t.Errorf("%s: decide(%+v) = %+v, want %+v", tc.name, tc.view, got, tc.want)
		}
	}
}

func TestDecideDevice(t *testing.T) {
	for _, tc := range []struct {
		name string
		view deviceView
		want deviceAction
	}{
		{"wanted", deviceView{desired: true}, deviceAction{do: opMountDevice}},
		{"wanted, may be mounted", deviceView{desired: true, has: uncertain}, deviceAction{do: opMountDevice}},
		{"wanted and mounted", deviceView{desired: true, has: present}, deviceAction{}},
		{"wanted, in back-off", deviceView{desired: true, failed: opMountDevice, wait: time.Second}, deviceAction{wait: time.Second}},
		{"wanted after a failed unmount", deviceView{desired: true, has: uncertain, failed: opUnmountDevice, wait: time.Second}, deviceAction{do: opMountDevice}},
		{"unwanted while it is mounted", deviceView{running: opMountDevice}, deviceAction{stop: true}},
		{"unwanted and told to stop", deviceView{running: opMountDevice, canceled: true}, deviceAction{}},
		{"unwanted but a volume is set up", deviceView{has: present, used: true}, deviceAction{}},
		{"unwanted but a volume's operation runs", deviceView{has: present, conflict: true}, deviceAction{}},
		{"unwanted", deviceView{has: present}, deviceAction{do: opUnmountDevice}},
		{"unwanted, may be mounted", deviceView{has: uncertain}, deviceAction{do: opUnmountDevice}},
		{"unwanted, unmount in back-off", deviceView{has: uncertain, failed: opUnmountDevice, wait: time.Second}, deviceAction{wait: time.Second}},
		{"unwanted, mount in back-off", deviceView{has: uncertain, failed: opMountDevice, wait: time.Second}, deviceAction{do: opUnmountDevice}},
		{"left by an earlier process", deviceView{has: uncertain, kept: true}, deviceAction{}},
		{"gone", deviceView{}, deviceAction{gone: true}},
	} {
		if got := decideDevice(tc.view); got != tc.want {
			t.Errorf("%s: decideDevice(%+v) = %+v, want %+v", tc.name, tc.view, got, tc.want)
		}
	}
}
