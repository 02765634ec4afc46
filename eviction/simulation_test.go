package eviction_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/notify"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
)

const (
	simMemory    = 16 << 30
	simThreshold = 512 * mi
	simDisk      = 100 << 30
	simTime      = 8 * time.Minute
	simStep      = 250 * time.Millisecond // between looks for a node out of memory
	simStall     = simMemory / 50         // with less, tasks stall for memory
)

// reaction is how long after the first stall a victim is gone: PSI reports once
// a second, the node's figures are read, those of pods, the node's again, and
// the pod ends. A look may be under way when it begins.
func (sc scenario) reaction() time.Duration {
	slowest := time.Duration(0)
	for _, p := range sc.pods {
		slowest = max(slowest, p.dies)
	}
	return time.Second + simStep + 3*sc.nodeTake + sc.podsTake + slowest
}

// growth is the most that memory grows in d, if nobody does anything.
func (sc scenario) growth(d time.Duration) (most int64) {
	sum := func(at time.Duration) (n int64) {
		for _, p := range sc.pods {
			n += p.memory(at.Seconds())
		}
		return n
	}
	for at := time.Duration(0); at < simTime; at += time.Second {
		most = max(most, sum(at+d)-sum(at))
	}
	return most
}

// simPod is a pod whose usage is a function of the time since the start.
type simPod struct {
	pod     *v1.Pod
	request int64 // of memory and of disk
	memory  func(s float64) int64
	disk    func(s float64) int64
	dies    time.Duration // what it takes to end
}

// scenario is one node, the same for both who keep it alive.
type scenario struct {
	pods     []simPod
	images   int64 // unused ones
	podsTake time.Duration
	nodeTake time.Duration
	removal  time.Duration // of images
}

func constant(n int64) func(float64) int64 { return func(float64) int64 { return n } }

// leaking grows from base at a rate per second, beginning at some time.
func leaking(base, rate int64, from float64) func(float64) int64 {
	return func(s float64) int64 { return base + int64(float64(rate)*max(0, s-from)) }
}

// bursting goes up to base+height and down again, every period.
func bursting(base, height int64, period, width float64) func(float64) int64 {
	return func(s float64) int64 {
		at := math.Mod(s, period)
		if at > width {
			return base
		}
		return base + int64(float64(height)*math.Sin(math.Pi*at/width))
	}
}

func newScenario(seed uint64) scenario {
	rng := rand.New(rand.NewPCG(seed, 8))
	millis := func(n int) time.Duration { return time.Duration(rng.IntN(n)) * time.Millisecond }
	sc := scenario{podsTake: millis(3000), nodeTake: millis(200), removal: 2*time.Second + millis(20000)}
	add := func(name string, request int64, memory, disk func(float64) int64) {
		priority := rng.Int32N(3) * 100
		q := *resource.NewQuantity(request, resource.BinarySI)
		sc.pods = append(sc.pods, simPod{
			request: request, memory: memory, disk: disk, dies: time.Second + millis(1500),
			pod: &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "sim", UID: types.UID(name)},
				Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceMemory: q, v1.ResourceEphemeralStorage: q},
				}}}},
			},
		})
	}
	free := int64(simMemory - simThreshold)
	for i := range 3 + rng.IntN(6) {
		request := int64(256+rng.IntN(1500)) * mi
		memory := request * int64(70+rng.IntN(31)) / 100
		free -= memory
		add(fmt.Sprintf("innocent-%d", i), request, constant(memory), constant(memory))
	}
	for i := range rng.IntN(3) {
		base := int64(64+rng.IntN(512)) * mi
		free -= base
		rate := int64(math.Exp(rng.Float64()*math.Log(150)) * mi) // 1 to 150 MiB/s
		add(fmt.Sprintf("leaking-%d", i), base, leaking(base, rate, rng.Float64()*60), constant(base))
	}
	for i := range rng.IntN(3) {
		base := int64(64+rng.IntN(512)) * mi
		free -= base
		height := max(free, 0) * int64(20+rng.IntN(100)) / 100
		width := 30 + 200*rng.Float64()
		add(fmt.Sprintf("bursty-%d", i), base, bursting(base, height, width+100*rng.Float64(), width), constant(base))
	}
	if rng.IntN(2) == 0 {
		base := int64(64+rng.IntN(512)) * mi
		rate := int64(50+rng.IntN(300)) * mi
		add("writing", base, constant(base), leaking(base, rate, rng.Float64()*60))
	}
	if rng.IntN(2) == 0 {
		sc.images = int64(10+rng.IntN(60)) << 30
	}
	return sc
}

// life is a scenario as it went.
type life struct {
	scenario
	start time.Time

	mu     sync.Mutex
	images int64
	ended  map[types.UID]bool
	dying  map[types.UID]bool
	result
	wrong   []string
	changes []time.Time
}

// result is what the table shows.
type result struct {
	outOfMemory bool
	low         time.Duration // for which memory was below its threshold
	longest     time.Duration // without a break
	victims     int           // for memory
	innocents   int           // evicted, for whatever reason
}

func (l *life) at(now time.Time) float64 { return now.Sub(l.start).Seconds() }

// rank.used is the memory and disk in use.
func (l *life) used(now time.Time) (memory, disk int64) {
	for i := range l.pods {
		if p := &l.pods[i]; !l.ended[p.pod.UID] {
			memory += p.memory(l.at(now))
			disk += p.disk(l.at(now))
		}
	}
	return memory, disk + l.images
}

func (l *life) list() []*v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*v1.Pod
	for i := range l.pods {
		if !l.ended[l.pods[i].pod.UID] {
			out = append(out, l.pods[i].pod)
		}
	}
	return out
}

func (l *life) Memory(context.Context) (eviction.Memory, error) {
	time.Sleep(l.nodeTake)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	used, _ := l.used(now)
	return eviction.Memory{Node: &eviction.MemoryFigure{Observation: rank.Observation{Available: simMemory - used, Capacity: simMemory, Time: now}}}, nil
}

func (l *life) Disks(context.Context) (eviction.Disks, error) {
	time.Sleep(l.nodeTake)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	_, used := l.used(now)
	return eviction.Disks{Node: eviction.Filesystem{Device: "8:1", Bytes: &rank.Observation{Available: simDisk - used, Capacity: simDisk, Time: now}}}, nil
}

func (l *life) Processes(context.Context) (rank.Observation, error) {
	return rank.Observation{Available: 1, Capacity: 1}, nil
}

func (p *simPod) usage(s float64) *rank.Usage {
	return &rank.Usage{Memory: p.memory(s), EphemeralStorage: p.disk(s),
		Containers: []rank.ContainerUsage{{Name: "main", Memory: p.memory(s), Rootfs: &rank.Disk{Bytes: p.disk(s)}}}}
}

func (l *life) Pods(_ context.Context, pods []*v1.Pod, _ eviction.Want) (map[types.UID]*rank.Usage, error) {
	time.Sleep(l.podsTake)
	l.mu.Lock()
	defer l.mu.Unlock()
	s, out := l.at(time.Now()), map[types.UID]*rank.Usage{}
	for i := range l.pods {
		if !l.ended[l.pods[i].pod.UID] {
			out[l.pods[i].pod.UID] = l.pods[i].usage(s)
		}
	}
	return out, nil
}

func (l *life) Containers(context.Context) error { return nil }

func (l *life) Images(context.Context) error {
	time.Sleep(l.removal)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.images = 0
	return nil
}

func (l *life) find(pod *v1.Pod) *simPod {
	return &l.pods[slices.IndexFunc(l.pods, func(p simPod) bool { return p.pod == pod })]
}

func (l *life) kill(_ context.Context, pod *v1.Pod, why podlife.Cause) error {
	var st v1.PodStatus
	why.Apply(&st)
	l.mu.Lock()
	p := l.find(pod)
	l.dying[pod.UID] = true
	disk := strings.HasPrefix(st.Message, "The node was low on resource: ephemeral-storage")
	if !disk {
		l.victims++
	}
	if disk && l.images > 0 {
		l.wrong = append(l.wrong, pod.Name+" was evicted for disk while there were images to remove")
	}
	if strings.HasPrefix(pod.Name, "innocent") {
		l.innocents++
		l.blame(pod, disk)
	}
	l.mu.Unlock()
	time.Sleep(p.dies)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[pod.UID] = true
	return nil
}

// blame notes that an innocent pod is evicted if there is a guilty one: that
// exceeds its request now, did so when figures were read, and is not ending.
func (l *life) blame(pod *v1.Pod, disk bool) {
	now := l.at(time.Now())
	for i := range l.pods {
		p := &l.pods[i]
		of := p.memory
		if disk {
			of = p.disk
		}
		before := now - (l.podsTake + l.nodeTake).Seconds()
		if !l.dying[p.pod.UID] && !l.ended[p.pod.UID] && of(now) > p.request && of(before) > p.request {
			l.wrong = append(l.wrong, fmt.Sprintf("%s was evicted %.1f s after the start, and %s uses too much", pod.Name, now, p.pod.Name))
		}
	}
}

// measure looks at memory until the end, and plays the kernel: it stalls when
// little is left, which PSI reports, and it is over when nothing is.
func (r *result) measure(available int64, since *time.Duration) {
	r.outOfMemory = r.outOfMemory || available < 0
	if available >= simThreshold {
		*since = 0
		return
	}
	r.low += simStep
	*since += simStep
	r.longest = max(r.longest, *since)
}

func simulate(t *testing.T, sc scenario) *life {
	l := &life{scenario: sc, start: time.Now(), images: sc.images, ended: map[types.UID]bool{}, dying: map[types.UID]bool{}}
	var psi notify.Fake
	m, err := eviction.New(eviction.Config{
		Stats: l, Pods: l.list, Kill: l.kill, Reclaim: l,
		Thresholds: []rank.Threshold{
			{Signal: rank.SignalMemory, Value: rank.Amount{Value: simThreshold}},
			{Signal: rank.SignalNodeFs, Value: rank.Amount{Fraction: .1}},
		},
		Notify: []eviction.Notifier{{Source: &psi, Signal: rank.SignalMemory}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, m.Run)
	var since, stalled time.Duration
	on := false
	for range simTime / simStep {
		time.Sleep(simStep)
		now := time.Now()
		l.mu.Lock()
		used, _ := l.used(now)
		l.measure(simMemory-used, &since)
		l.mu.Unlock()
		if simMemory-used < simStall {
			if stalled += simStep; stalled%time.Second == 0 {
				psi.Fire("psi")
			}
		}
		if is := m.UnderPressure(v1.NodeMemoryPressure); is != on {
			on = is
			l.changes = append(l.changes, now)
		}
	}
	stop()
	return l
}

// reference is a node that is kept by the kubelet's timing: figures that are
// up to 10 s old, a look every 10 s, one victim at a time, and a wait for it
// to be gone.
func reference(sc scenario) (r result) {
	ended := map[types.UID]time.Duration{} // when
	gone := func(p *simPod, at time.Duration) bool { e, ok := ended[p.pod.UID]; return ok && at >= e }
	used := func(at time.Duration) (sum int64) {
		for i := range sc.pods {
			if !gone(&sc.pods[i], at) {
				sum += sc.pods[i].memory(at.Seconds())
			}
		}
		return sum
	}
	const period = 10 * time.Second
	seen, figures := time.Duration(-1), time.Duration(0)
	next := 5 * time.Second // half a period after the figures
	var since time.Duration
	for at := simStep; at <= simTime; at += simStep {
		r.measure(simMemory-used(at), &since)
		figures = at / period * period
		if at < next {
			continue
		}
		next = at + period
		if simMemory-used(figures) >= simThreshold || figures <= seen {
			seen = max(seen, figures)
			continue
		}
		seen = figures
		var list []rank.Candidate
		for i := range sc.pods {
			if p := &sc.pods[i]; !gone(p, at) {
				list = append(list, rank.Candidate{Pod: p.pod, Usage: p.usage(figures.Seconds())})
			}
		}
		if len(list) == 0 {
			continue
		}
		victim := rank.Sort(rank.Rules{}, rank.SignalMemory, list)[0].Pod
		p := &sc.pods[slices.IndexFunc(sc.pods, func(p simPod) bool { return p.pod == victim })]
		ended[victim.UID] = at + p.dies
		r.victims++
		if strings.HasPrefix(victim.Name, "innocent") {
			r.innocents++
		}
		next = at + p.dies.Truncate(time.Second) + time.Second
	}
	return r
}

// total sums results up.
type total struct {
	outOfMemory, victims, innocents, lowSeeds int
	low, longest                              time.Duration
}

func (s *total) add(r result) {
	if r.outOfMemory {
		s.outOfMemory++
	}
	if r.low > 0 {
		s.lowSeeds++
	}
	s.victims += r.victims
	s.innocents += r.innocents
	s.low += r.low
	s.longest = max(s.longest, r.longest)
}

func (s total) String() string {
	return fmt.Sprintf("%6d %8d %10d %10s %10s", s.outOfMemory, s.victims, s.innocents,
		(s.low / time.Duration(max(s.lowSeeds, 1))).Round(100*time.Millisecond), s.longest)
}

// Of a thousand nodes with leaking, bursty, writing and innocent pods, slow
// figures and disks full of images, none runs out of memory that the
// reference would have kept, no innocent pod is evicted in place of a guilty
// one, no pod for disk before the images, and no condition flaps.
func TestSimulation(t *testing.T) {
	seeds := uint64(simSeeds)
	if testing.Short() {
		seeds = 100
	}
	var ours, theirs, oursSlow, theirsSlow total
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			sc := newScenario(seed)
			l, ref := simulate(t, sc), reference(sc)
			ours.add(l.result)
			theirs.add(ref)
			for _, w := range l.wrong {
				t.Errorf("seed %d: %s", seed, w)
			}
			slow := sc.growth(sc.reaction()) < simStall
			if slow {
				oursSlow.add(l.result)
				theirsSlow.add(ref)
			}
			if l.outOfMemory && slow {
				t.Errorf("seed %d: out of memory, and it grew slower than can be reacted to", seed)
			}
			if l.outOfMemory && !ref.outOfMemory {
				t.Errorf("seed %d: out of memory, and the reference was not", seed)
			}
			for i := 1; i < len(l.changes); i += 2 {
				if d := l.changes[i].Sub(l.changes[i-1]); d < 5*time.Minute-simStep {
					t.Errorf("seed %d: memory pressure lasted %v", seed, d)
				}
			}
		})
	}
	t.Logf("%4d nodes           OOMs  victims  innocents   mean low    longest", seeds)
	t.Logf("ours               %v", ours)
	t.Logf("the reference      %v", theirs)
	t.Logf("of these, where memory grows slower than can be reacted to (%d with pressure)", oursSlow.lowSeeds)
	t.Logf("ours               %v", oursSlow)
	t.Logf("the reference      %v", theirsSlow)
}
