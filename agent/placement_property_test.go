package agent_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/numa"
)

// churn is a node on which pods come and go, and agents die.
type churn struct {
	*node
	life  *life
	rnd   *rand.Rand
	dying atomic.Int64 // calls until the agent dies; below 0 it does not
	next  int
	mu    sync.Mutex
	had   map[string]string // the cpuset of each container with CPUs of its own
}

var errDied = errors.New("the agent died here")

// runningSets are the cpusets of what runs, by ID; own says whose are its own.
func (c *churn) runningSets() (sets map[string]numa.CPUSet, own map[string]bool) {
	sets, own = map[string]numa.CPUSet{}, map[string]bool{}
	list, _ := c.rt.ListContainers(context.Background(), nil)
	for _, ct := range list {
		if ct.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		sets[ct.GetId()], own[ct.GetId()] = c.setOf(ct.GetId())
	}
	return sets, own
}

func (c *churn) setOf(id string) (numa.CPUSet, bool) {
	st, err := c.rt.ContainerStatus(context.Background(), id, false)
	if err != nil {
		return numa.CPUSet{}, false
	}
	r := st.GetStatus().GetResources().GetLinux()
	set, err := numa.ParseCPUs(r.GetCpusetCpus())
	if err != nil {
		c.t.Error(err)
	}
	return set, r.GetCpuQuota() == -1
}

// check looks for CPUs that are one container's own, and another's too. starts
// is about to start.
func (c *churn) check(when, starts string) {
	sets, own := c.runningSets()
	c.mu.Lock()
	defer c.mu.Unlock()
	if starts != "" {
		sets[starts], own[starts] = c.setOf(starts)
	}
	for id, set := range sets {
		if !own[id] {
			continue
		}
		for other, theirs := range sets {
			if other != id && set.IntersectLen(theirs) > 0 {
				c.t.Errorf("%s: CPUs %s are %s's own, and %s (own: %v) has %s", when, set, id, other, own[other], theirs)
			}
		}
		if was, ok := c.had[id]; ok && was != set.String() {
			c.t.Errorf("%s: %s had CPUs %s, and has %s now", when, id, was, set)
		}
		c.had[id] = set.String()
	}
}

func (c *churn) call(call critest.Call, done bool) error {
	if call.Method == "GetContainerEvents" {
		return nil
	}
	if done {
		if c.dying.Load() == 0 {
			return errDied
		}
		return nil
	}
	switch left := c.dying.Load(); {
	case left == 0:
		return errDied
	case left > 0:
		c.dying.Add(-1)
	case call.Method == "StartContainer":
		c.check("as it starts", call.Target)
	}
	return nil
}

func (c *churn) start() {
	c.dying.Store(-1)
	c.life = c.node.start()
}

func (c *churn) step() string {
	if n := len(c.want); n > 0 && c.rnd.IntN(3) == 0 {
		i := c.rnd.IntN(n)
		gone := c.want[i].Name
		c.want = slices.Delete(slices.Clone(c.want), i, i+1)
		c.life.tell()
		return "without " + gone
	}
	c.next++
	name := fmt.Sprint("p", c.next)
	pod := newPod(name, runs(name))
	if c.rnd.IntN(3) > 0 {
		pod = own(name, fmt.Sprint(1+c.rnd.IntN(3)))
		if c.rnd.IntN(3) == 0 {
			first := sized(name+"i", fmt.Sprint(1+c.rnd.IntN(3)), "64Mi")
			first.Args = []string{"sleep", "300ms", "exit", "0"}
			pod.Spec.InitContainers = []v1.Container{first}
		}
	}
	c.want = append(slices.Clone(c.want), pod)
	c.life.tell()
	return "with " + name
}

var seeds = flag.Int("seeds", 5, "how many orders of events are tried, of many; make nightly has 100")

// Whatever comes, no CPU is given twice, and none is taken away.
func TestPlacementProperty(t *testing.T) {
	for seed := range uint64(*seeds) {
		synctest.Test(t, func(t *testing.T) {
			c := &churn{node: pinnedNode(t), rnd: rand.New(rand.NewPCG(seed, 1)), had: map[string]string{}}
			c.rt.Around(func(call critest.Call) error { return c.call(call, false) }, func(call critest.Call) error { return c.call(call, true) })
			c.start()
			var did []string
			for range 25 {
				what := c.step()
				switch c.rnd.IntN(5) {
				case 0:
					what += ", killed"
					c.dying.Store(int64(1 + c.rnd.IntN(6)))
					time.Sleep(time.Duration(c.rnd.IntN(400)) * time.Millisecond)
					c.life.stop()
					if c.rnd.IntN(3) == 0 {
						what += ", checkpoint lost"
						files, _ := filepath.Glob(filepath.Join(c.root, "root", "placement", "uid-*"))
						if len(files) > 0 {
							_ = os.Remove(files[c.rnd.IntN(len(files))])
						}
					}
					c.start()
				case 1:
					time.Sleep(time.Duration(c.rnd.IntN(200)) * time.Millisecond)
				default:
					time.Sleep(2 * time.Second)
				}
				synctest.Wait()
				did = append(did, what)
				if c.dying.Load() < 0 {
					c.check(strings.Join(did, "; "), "")
				}
				if t.Failed() {
					t.Logf("seed %d", seed)
					break
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			c.check("in the end", "")
			for _, p := range c.want { // what was admitted runs
				if st := c.life.pod(p.Name).Status; st.Phase != v1.PodRunning && st.Phase != v1.PodFailed {
					t.Errorf("seed %d: pod %s is %s: %+v", seed, p.Name, st.Phase, c.life.Why(c.life.pod(p.Name)))
				}
			}
			c.want = nil
			c.life.tell()
			time.Sleep(time.Minute)
			synctest.Wait()
			c.wantNothingLeft()
			if left, _ := filepath.Glob(filepath.Join(c.root, "root", "placement", "uid-*")); len(left) > 0 {
				t.Errorf("checkpoints are left: %v", left)
			}
			c.life.stop()
		})
		if t.Failed() {
			return
		}
	}
}
