package cgroups_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

// Whatever fails on the way, once nothing fails any more every pod has what it
// is to have, every other cgroup is gone, and the tiers fit.
func TestFaultsHeal(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		rnd := rand.New(rand.NewPCG(1, uint64(v)))
		m := newManager(t, tree, cgroups.Config{})
		run(t, m)
		ops := []string{"read *", "write *", "mkdir *", "rmdir *", "list *"}
		wanted := map[string]bool{}
		for range 300 {
			op := ops[rnd.IntN(len(ops))]
			tree.Fail(op[:len(op)-2], "*", syscall.EIO)
			uid := fmt.Sprint("u", rnd.IntN(5))
			wanted[uid] = rnd.IntN(2) == 0
			for range 2 { // in vain, mostly, and then without the fault
				if wanted[uid] {
					_ = m.Ensure(t.Context(), pod(uid, "cpu=500m memory=1Mi", "cpu=1 memory=2Mi"))
				} else {
					_ = m.Destroy(t.Context(), pod(uid, "", "").UID)
				}
				if rnd.IntN(3) == 0 {
					break // nobody comes back to it for now
				}
				tree.Fail(op[:len(op)-2], "*", nil)
			}
			if rnd.IntN(4) == 0 {
				time.Sleep(150 * time.Millisecond)
			}
			tree.Fail(op[:len(op)-2], "*", nil)
		}
		n := 0
		for uid, want := range wanted {
			p, at := pod(uid, "cpu=500m memory=1Mi", "cpu=1 memory=2Mi"), burstable+"/pod"+uid
			if !want {
				ok(t, m.Destroy(t.Context(), p.UID))
				if tree.Exists(at) {
					t.Errorf("%s is there", at)
				}
				continue
			}
			n++
			ok(t, m.Ensure(t.Context(), p))
			has(t, v, tree, at,
				[]string{"cpu.shares 512", "cpu.cfs_quota_us 100000", "memory.limit_in_bytes 2097152", "cpuset.cpus 0-1"},
				[]string{"cpu.weight 20", "cpu.max 100000 100000", "memory.max 2097152"})
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		ok(t, m.Healthy())
		shares := cgroups.SharesOf(int64(n) * 500)
		has(t, v, tree, burstable,
			[]string{fmt.Sprint("cpu.shares ", shares)}, []string{fmt.Sprint("cpu.weight ", cgroups.WeightOf(shares))})
	})
}

// canceling is a file system that ends a context with one of its calls.
type canceling struct {
	*cgroupstest.Tree
	calls  atomic.Int64 // until then
	cancel func()
}

func (c *canceling) count() {
	if c.calls.Add(-1) == 0 {
		c.cancel()
	}
}

func (c *canceling) Read(p string) ([]byte, error) {
	defer c.count()
	return c.Tree.Read(p)
}

func (c *canceling) Write(p, value string) error {
	defer c.count()
	return c.Tree.Write(p, value)
}

func (c *canceling) Mkdir(p string) error {
	defer c.count()
	return c.Tree.Mkdir(p)
}

// The sync of a pod that changes all the time is canceled anywhere. Whatever it was doing, its cgroup
// can be removed after that.
func TestCanceledAnywhere(t *testing.T) {
	versions(t, func(t *testing.T, _ cgroups.Version, tree *cgroupstest.Tree) {
		on := &canceling{Tree: tree}
		m, err := cgroups.New(cgroups.Config{FS: on, Notifier: tree, Kill: tree.Kill})
		ok(t, err)
		p := pod("b-1", "cpu=1 memory=1Mi", "")
		ok(t, m.Ensure(t.Context(), p)) // the cgroups above it
		ok(t, m.Destroy(t.Context(), p.UID))
		for n := int64(1); ; n++ {
			ctx, cancel := context.WithCancel(t.Context())
			on.cancel = cancel
			on.calls.Store(n)
			_ = m.Ensure(ctx, p)
			all := on.calls.Swap(0) > 0
			synctest.Wait()
			ok(t, m.Destroy(t.Context(), p.UID))
			cancel()
			if tree.Exists(podB) {
				t.Fatalf("after a cancellation at call %d, the cgroup is there", n)
			}
			if all {
				return
			}
		}
	})
}
