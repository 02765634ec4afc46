package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// generate makes the schedule of a seed: some hours, or with long some days, with up
// to 20 pods at a time.
func generate(seed uint64, long bool) []step {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 22)), long: long, disks: seed%3 == 0 && (!ofNodes(seed) || seed%2 == 0), node: ofNodes(seed)}
	n := 10 + g.rnd.IntN(50)
	g.crowded = g.node && g.rnd.IntN(2) == 0
	for len(g.out) < n {
		g.one()
	}
	return g.out
}

type generator struct {
	rnd   *rand.Rand
	out   []step
	names []string
	long  bool
	disks bool // there is a CSI driver
	node  bool // lives are whole nodes
	count int

	crowded bool // many pods ask for devices or CPUs of their own

	probed  [][2]string // pods with probes, and their kinds
	sized   []string    // pods that can be resized
	objects []string    // that pods refer to: kind and name
}

func (g *generator) pick(of ...string) string { return of[g.rnd.IntN(len(of))] }

// pause is mostly short, as most trouble comes from what is under way, and at
// times most of a day.
func (g *generator) pause() time.Duration {
	switch n := g.rnd.IntN(20); {
	case n < 3:
		return 0
	case n < 7:
		return time.Duration(g.rnd.IntN(3000)) * time.Millisecond
	case n < 13:
		return time.Duration(g.rnd.IntN(120)) * time.Second
	case n < 18 || !g.long:
		return time.Duration(g.rnd.IntN(15)) * time.Minute
	default:
		return time.Duration(g.rnd.IntN(24)) * time.Hour
	}
}

func (g *generator) add(format string, args ...any) {
	f := strings.Fields(fmt.Sprintf(format, args...))
	g.out = append(g.out, step{after: g.pause(), verb: f[0], args: f[1:]})
}

func (g *generator) name() string {
	if len(g.names) == 0 {
		return "none"
	}
	return g.pick(g.names...)
}

var methods = []string{
	"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer",
	"RemoveContainer", "ExecSync", "ListPodSandbox", "ListContainers", "ContainerStatus", "PodSandboxStatus", "UpdateContainerResources", "Prepare", "Unprepare", "*",
	"Mount", "Unmount", "Get", "Token",
}

func (g *generator) one() {
	switch n := g.rnd.IntN(100); {
	case n < 22 && len(g.names) < 20 || len(g.names) == 0:
		g.pod()
	case n < 24 && len(g.sized) > 0:
		g.add("resize %s %s", g.pick(g.sized...), g.pick("32", "64", "128"))
	case n < 32:
		g.add("remove %s", g.name())
	case n < 35:
		g.add("forget %s", g.name())
	case n < 40:
		g.add("back %s", g.name())
	case n < 47:
		g.add("edit %s", g.name())
	case n == 56 && g.node:
		g.pressure()
	case n < 57:
		g.add("exit %s %s %d", g.name(), g.pick("c", "c", "d", "s1", "i1"), g.rnd.IntN(3))
	case n < 60:
		g.add("sandbox %s", g.name())
	case n < 66:
		g.add("agent kill")
	case n < 76:
		g.add("agent kill-at %d", 1+g.rnd.IntN(40))
	case n < 79:
		g.add("agent %s", g.pick("stop", "start"))
	case n < 82 && g.node && g.rnd.IntN(3) == 0:
		if g.rnd.IntN(2) == 0 {
			g.add("shutdown off %ds", 1+g.rnd.IntN(70))
		} else {
			g.add("shutdown")
		}
	case n < 82:
		g.add("power")
	case n < 85 && len(g.probed) > 0:
		p := g.probed[g.rnd.IntN(len(g.probed))]
		g.add("probe %s %s %s", p[0], p[1], g.pick("ok", "ok", "no", "no", "no", "hang", "mute", "broken"))
	case n < 88:
		pod := "*"
		if g.rnd.IntN(3) > 0 {
			pod = g.name()
		}
		g.add("call %s %s %s", g.pick(methods...), g.pick("fail", "hang", "lost"), pod)
	case n < 90 && len(g.objects) > 0:
		g.add("object %s %s", g.pick(g.objects...), g.pick("change", "change", "change", "gone"))
	case n < 91 && g.disks:
		g.storage()
	case n < 92 && g.node && g.rnd.IntN(2) == 0:
		g.pressure()
	case n < 92:
		g.add("heal")
	case n < 94:
		g.add("runtime %s", g.pick("down", "up"))
	case n < 96 && g.node:
		g.add("api %s", g.pick("down", "up", "up", "hang", "slow", "errors", "busy", "silent", "conflict", "cut", "gone", "nodeless"))
	case n < 96:
		g.add("api %s", g.pick("down", "up"))
	case n < 97:
		g.add("events %s", g.pick("lost", "kept"))
	case n < 98 && (!wallShifts || g.rnd.IntN(2) == 0):
		g.add("disk %s", g.pick("fail", "hang", "ok", "ok"))
	case n < 99:
		g.add("plugin %s", g.pick("down", "up"))
	case wallShifts && g.rnd.IntN(3) > 0:
		g.add("wall %s", g.pick("0s", "1h", "-1h", "8760h", "-26280h", "26280h"))
	default:
		g.add("clock %s", g.pick("0s", "1h", "-1h", "8760h", "-26280h"))
	}
}

func (g *generator) pod() {
	g.count++
	name := fmt.Sprintf("p%d", g.count)
	g.names = append(g.names, name)
	args := []string{name, g.pick("static", "api", "api")}
	policy := g.pick("Always", "Always", "Always", "OnFailure", "Never")
	if policy != "Always" {
		args = append(args, "policy="+policy)
	}
	if g.rnd.IntN(3) == 0 {
		args = append(args, fmt.Sprintf("grace=%d", []int{1, 30, 120}[g.rnd.IntN(3)]))
	}
	if g.node && g.rnd.IntN(6) == 0 {
		prio := []int{highPriority, highPriority, clusterCritical, nodeCritical}[g.rnd.IntN(4)]
		if args[1] == "static" {
			prio = highPriority
		}
		args = append(args, fmt.Sprintf("prio=%d", prio))
	}
	kinds := 8
	if g.crowded {
		kinds = 3
	}
	if g.node && g.rnd.IntN(8) == 0 {
		args = append(args, g.pick("users=own", "tolerates=memory"))
	}
	switch g.rnd.IntN(kinds) {
	case 3:
		args = append(args, "mem="+g.pick("32", "64", "128"))
		g.sized = append(g.sized, name)
	case 2:
		args = append(args, "claim=1")
	case 0:
		args = append(args, fmt.Sprintf("dev=%d", 1+g.rnd.IntN(2)))
	case 1:
		args = append(args, fmt.Sprintf("cpu=%d", 1+g.rnd.IntN(3)))
	}
	if g.rnd.IntN(3) == 0 {
		for _, kind := range probeKinds {
			if g.rnd.IntN(2) == 0 {
				g.probed = append(g.probed, [2]string{name, kind})
				args = append(args, fmt.Sprintf("%s=%d", kind, 20+g.rnd.IntN(60)))
			}
		}
	}
	if args[1] == "api" && (g.rnd.IntN(4) == 0 || g.disks && g.rnd.IntN(2) == 0) {
		g.volumes(&args)
	}
	if g.rnd.IntN(4) == 0 {
		args = append(args, "i1="+g.pick("exit,0", "sleep,20s,exit,0", "exit,0"))
	}
	if g.rnd.IntN(4) == 0 {
		args = append(args, "s1="+g.pick("forever", "ignore,forever", "trap,0,2s,forever"))
	}
	for _, c := range []string{"c", "d"}[:1+g.rnd.IntN(2)] {
		script := g.pick("forever", "forever", "ignore,forever", "trap,0,3s,forever", "trap,3,0s,forever")
		if policy != "Always" || g.rnd.IntN(5) == 0 {
			script = fmt.Sprintf("sleep,%ds,exit,%d", 1+g.rnd.IntN(600), g.rnd.IntN(3)/2)
		}
		args = append(args, c+"="+script)
	}
	g.add("pod %s", strings.Join(args, " "))
}

// volumes gives a pod some, of objects that others may have too.
func (g *generator) volumes(args *[]string) {
	for _, kind := range []string{"config", "secret"} {
		if g.rnd.IntN(2) == 0 {
			name := g.pick("a", "b")
			g.objects = append(g.objects, kind+" "+name)
			*args = append(*args, kind+"="+name)
		}
	}
	if g.rnd.IntN(2) == 0 {
		*args = append(*args, "token=1")
	}
	if g.disks && g.rnd.IntN(3) > 0 {
		claim := g.pick("own", "a", "a", "b")
		if claim != "own" && g.rnd.IntN(4) == 0 {
			g.add("attach %s elsewhere", claim)
		}
		*args = append(*args, "csi="+claim)
	}
}

// storage is what happens to the driver, its calls and its volumes.
func (g *generator) storage() {
	switch g.rnd.IntN(6) {
	case 0:
		g.add("csi %s", g.pick("down", "up"))
	case 1, 2:
		g.add("attach %s %s", g.pick("a", "b"), g.pick("here", "elsewhere", "elsewhere"))
	default:
		pod := "*"
		if g.rnd.IntN(3) > 0 {
			pod = g.name()
		}
		method := g.pick("NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume")
		g.add("call %s %s %s", method, g.pick("fail", "hang", "lost", "lost", "lie"), pod)
	}
}

// pressure has a pod use much, or little again, or the kernel kill one that does.
func (g *generator) pressure() {
	if g.rnd.IntN(3) == 0 {
		g.add("oom %s %s", g.name(), g.pick("c", "c", "d", "s1"))
		return
	}
	what, much := "memory", g.pick("1500", "2500", "3500", "5000")
	if g.rnd.IntN(3) == 0 {
		what, much = "disk", g.pick("40000", "60000", "95000")
	}
	others := g.rnd.IntN(2) == 0 // come while the node is short
	if others {
		much = map[string]string{"memory": "5000", "disk": "95000"}[what]
	} else {
		much = g.pick(much, much, "8")
	}
	g.add("uses %s %s %s", g.name(), what, much)
	if others {
		for range 1 + g.rnd.IntN(3) {
			g.pod()
			g.out[len(g.out)-1].after = time.Duration(g.rnd.IntN(120)) * time.Second
		}
	}
}
