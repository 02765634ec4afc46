package shutdown

import (
	"testing"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

// Whatever an earlier agent seems to have left, it is an error and changes
// nothing, or it is written the same again; only a shutdown of this life of the
// machine keeps pods out.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"startTime":"2026-01-02T03:04:05Z","endTime":"0001-01-01T00:00:00Z","down":true,"boot":"this"}`), "this")
	f.Add([]byte(`{"down":true,"boot":"other"}`), "this")
	f.Add([]byte(`{"down":true,"boot":""}`), "")
	f.Add([]byte(`{"startTime":"9999-12-31T23:59:59.999999999+23:59"}`), "")
	f.Fuzz(func(t *testing.T, raw []byte, boot string) {
		store := &checkpointtest.Disk{}
		store.Put(stateKey, string(raw))
		met, err := newMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		restore := func() (*Manager, error) {
			m := &Manager{cfg: Config{State: store, BootID: boot}, groups: make([]Group, 1), met: met, keeping: make(chan struct{}, 1)}
			return m, m.Restore()
		}
		m, err := restore()
		if err != nil {
			if m.down || m.state != (state{}) {
				t.Fatalf("%q is an error and %+v, down %t", raw, m.state, m.down)
			}
			return
		}
		if m.down && (m.state.Boot != boot || boot == "") {
			t.Fatalf("%q keeps pods out in the life %q", raw, boot)
		}
		if m.down != m.state.Down {
			t.Fatalf("down is %t and in the state %t", m.down, m.state.Down)
		}
		m.keep()
		m.wg.Wait()
		again, err := restore()
		if err != nil || again.down != m.down || again.state.Boot != m.state.Boot ||
			!again.state.StartTime.Equal(m.state.StartTime) || !again.state.EndTime.Equal(m.state.EndTime) {
			t.Fatalf("%q is %+v, and after it was written %+v, %v", raw, m.state, again.state, err)
		}
	})
}
