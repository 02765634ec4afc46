package cgroups_test

import (
	"fmt"
	"math/rand/v2"
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
