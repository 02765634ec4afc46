package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const image = "localhost/app:1"

// pod is one pod of a schedule, from its first line on and for ever.
type pod struct {
	object *v1.Pod // as its source has it; its Spec is not changed in place
	static bool
	stable bool // its containers end only if they are told to

	wanted  bool      // its source names it, and nobody has asked for its end
	gone    time.Time // when its source ceased to name it; zero if it does
	since   time.Time // last time that it came or changed
	came    time.Time // when it came first
	epoch   int       // how often it was put back, or changed
	grace   time.Duration
	trouble time.Time // when a step last made a fault of it
	over    bool      // its last status was Succeeded or Failed
	ended   time.Time // when that was published first

	deleted    bool // by the agent
	resizable  bool
	guessed    bool      // its restart counts go on from what was published, and its containers may have begun anew
	takenBack  bool      // a volume of it, after its end
	preempted  bool      // for a critical one
	anew       bool      // it was rejected, and began again
	rejected   bool      // its last status says so
	evicted    bool      // as well
	events     int       // about it
	evicting   time.Time // when it was chosen
	chosen     bool      // while the runtime was away
	terminated bool      // its last status says that it was ended for a shutdown
	forgotten  bool      // its end, by an agent that could not know better

	lowered   time.Time // its last end for a shutdown
	stopping  time.Time // of its first stop since its last start
	counts    map[string]int32
	counted   map[string]counted
	claim     string // whose volume it uses, or ""
	volumes   []volume
	published []string          // places of its volumes of CSI drivers, below its directory
	answers   map[string]string // that its probes are given, by kind; "" is ok
}

// newPod makes a pod of its line:
//
//	NAME SOURCE key=value... container=script...
//
// SOURCE is static or api. The keys are policy (Always), grace in seconds (10), prio, a priority (0),
// dev, a number of devices, and cpu, a number of CPUs of its own, both for the
// first container, claim=1, a ResourceClaim of its own for all of them, and ready, live and
// start, probes of the first container with their periods in seconds; users=own, a user namespace of
// its own; tolerates=memory, that its node is short of it; config and secret, volumes
// of the objects of those names, token=1, a projected token; mem, Mi of its first container, which can be resized; and csi, a volume of a driver: of the claim of that name, or
// own (all of pods of the API server). A container whose name begins with i is an init container,
// with s a sidecar. A script is the fake runtime's, with commas; "forever" is
// "sleep,forever".
func newPod(args []string, uid string) (p *pod, err error) {
	if len(args) < 3 {
		return nil, fmt.Errorf("pod %q: want NAME SOURCE CONTAINER=SCRIPT", strings.Join(args, " "))
	}
	grace := int64(10)
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: args[0], UID: types.UID(uid)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault, TerminationGracePeriodSeconds: &grace},
	}
	p = &pod{object: o, static: args[1] == "static", stable: true, counts: map[string]int32{}, counted: map[string]counted{}}
	limits, probes := v1.ResourceList{}, map[string]*v1.Probe{}
	for _, a := range args[2:] {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("pod %s: %q: want key=value", args[0], a)
		}
		switch key {
		case "policy":
			o.Spec.RestartPolicy = v1.RestartPolicy(value)
		case "grace":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("pod %s: grace %q: want seconds", args[0], value)
			}
			grace = n
		case "prio":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("pod %s: prio %q: want a number", args[0], value)
			}
			prio := int32(n)
			o.Spec.Priority = &prio
		case "dev":
			limits[device] = resource.MustParse(value)
		case "claim":
			defer claim(o)
		case "users":
			o.Spec.HostUsers = new(bool)
		case "tolerates":
			o.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}
		case "ready", "live", "start":
			made, err := newProbe(key, value)
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", args[0], err)
			}
			probes[key] = made
		case "cpu":
			limits[v1.ResourceCPU], limits[v1.ResourceMemory] = resource.MustParse(value), resource.MustParse("64Mi")
		case "mem":
			p.resizable = !p.static
			defer func() {
				if err == nil {
					err = setMemory(o, value)
				}
			}()
		case "config", "secret", "token", "csi": // see addVolumes
		default:
			p.container(key, value)
		}
	}
	p.grace = time.Duration(grace) * time.Second
	if _, own := limits[v1.ResourceCPU]; own { // all of a pod's containers have limits then, or none has CPUs of its own
		for _, list := range [][]v1.Container{o.Spec.Containers, o.Spec.InitContainers} {
			for i := range list {
				list[i].Resources = guaranteed(v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")})
			}
		}
	}
	if len(o.Spec.Containers) > 0 {
		setProbes(&o.Spec.Containers[0], probes)
	}
	if len(limits) > 0 && len(o.Spec.Containers) > 0 {
		o.Spec.Containers[0].Resources = guaranteed(limits)
	}
	return p, nil
}

func guaranteed(l v1.ResourceList) v1.ResourceRequirements {
	return v1.ResourceRequirements{Limits: l, Requests: l.DeepCopy()}
}

func (p *pod) container(name, script string) {
	c := v1.Container{Name: name, Image: image, ImagePullPolicy: v1.PullIfNotPresent, Args: scriptArgs(script)}
	switch name[0] {
	case 's':
		always := v1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		p.object.Spec.InitContainers = append(p.object.Spec.InitContainers, c)
	case 'i':
		p.object.Spec.InitContainers = append(p.object.Spec.InitContainers, c)
	default:
		p.stable = p.stable && strings.HasSuffix(script, "forever")
		p.object.Spec.Containers = append(p.object.Spec.Containers, c)
	}
}

func scriptArgs(script string) (args []string) {
	for _, a := range strings.Split(script, ",") {
		if a == "forever" {
			args = append(args, "sleep")
		}
		args = append(args, a)
	}
	return args
}

// policyOf is the restart policy of a container, and whether there is one of that
// name and it is an init container that comes to its end.
func (p *pod) policyOf(name string) (policy v1.RestartPolicy, initial bool) {
	for _, c := range p.object.Spec.InitContainers {
		if c.Name == name {
			if c.RestartPolicy != nil {
				return v1.RestartPolicyAlways, false
			}
			return p.object.Spec.RestartPolicy, true
		}
	}
	return p.object.Spec.RestartPolicy, false
}
