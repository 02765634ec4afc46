package nri

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// adjust makes the changes of a configuration that plugins ask for, except CDI devices. The runtime
// checks the result.
func adjust(s *specs.Spec, a *api.ContainerAdjustment) error {
	if s.Process == nil || s.Linux == nil {
		return errors.New("configuration of the container has no process or no linux")
	}
	if err := supported(a.GetLinux()); err != nil {
		return err
	}
	s.Annotations = merged(s.Annotations, a.GetAnnotations())
	s.Process.Env = environment(s.Process.Env, a.GetEnv())
	if args := a.GetArgs(); len(args) > 0 {
		s.Process.Args = slices.Clone(args)
	}
	adjustHooks(s, a.GetHooks())
	for _, l := range a.GetRlimits() {
		s.Process.Rlimits = slices.DeleteFunc(s.Process.Rlimits, func(o specs.POSIXRlimit) bool { return o.Type == l.GetType() })
		s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: l.GetType(), Hard: l.GetHard(), Soft: l.GetSoft()})
	}
	adjustMounts(s, a.GetMounts())
	adjustLinux(s, a.GetLinux())
	return nil
}

// supported returns an error if plugins ask for something that this package does not change.
func supported(l *api.LinuxContainerAdjustment) error {
	r := l.GetResources()
	for field, is := range map[string]bool{
		"memory": otherMemory(r.GetMemory()), "blockio_class": r.GetBlockioClass().GetValue() != "", "rdt_class": r.GetRdtClass().GetValue() != "",
	} {
		if is {
			return unsupported("linux.resources." + field)
		}
	}
	return nil
}

// merged returns the values of to with the changes of from. A key with a leading hyphen removes the
// value of the rest, unless from also has that.
func merged(to, from map[string]string) map[string]string {
	out := maps.Clone(to)
	if out == nil {
		out = map[string]string{}
	}
	for k := range from {
		if key, removed := api.IsMarkedForRemoval(k); removed {
			delete(out, key)
		}
	}
	for k, v := range from {
		if _, removed := api.IsMarkedForRemoval(k); !removed {
			out[k] = v
		}
	}
	return out
}

// environment returns variables with the changes of plugins. A changed variable keeps its place.
func environment(env []string, changes []*api.KeyValue) []string {
	out := slices.Clone(env)
	at := func(name string) int {
		return slices.IndexFunc(out, func(e string) bool { n, _, _ := strings.Cut(e, "="); return n == name })
	}
	added := map[string]bool{}
	for _, e := range changes {
		if _, removed := e.IsMarkedForRemoval(); !removed {
			added[e.GetKey()] = true
		}
	}
	for _, e := range changes {
		name, removed := e.IsMarkedForRemoval()
		switch i := at(name); {
		case removed && added[name]:
		case removed && i >= 0:
			out = slices.Delete(out, i, i+1)
		case removed:
		case i >= 0:
			out[i] = name + "=" + e.GetValue()
		default:
			out = append(out, name+"="+e.GetValue())
		}
	}
	return out
}

func adjustHooks(s *specs.Spec, h *api.Hooks) {
	if h == nil {
		return
	}
	if s.Hooks == nil {
		s.Hooks = &specs.Hooks{}
	}
	for _, kind := range []struct {
		to   *[]specs.Hook
		from []*api.Hook
	}{
		{&s.Hooks.Prestart, h.GetPrestart()}, {&s.Hooks.CreateRuntime, h.GetCreateRuntime()}, {&s.Hooks.CreateContainer, h.GetCreateContainer()}, //nolint:staticcheck // plugins may use prestart
		{&s.Hooks.StartContainer, h.GetStartContainer()}, {&s.Hooks.Poststart, h.GetPoststart()}, {&s.Hooks.Poststop, h.GetPoststop()},
	} {
		for _, hook := range kind.from {
			*kind.to = append(*kind.to, hook.ToOCI())
		}
	}
}

// adjustMounts replaces and removes mounts by their destination, and keeps the mount of a directory
// before mounts below it.
func adjustMounts(s *specs.Spec, mounts []*api.Mount) {
	for _, m := range mounts {
		destination, removed := m.IsMarkedForRemoval()
		s.Mounts = slices.DeleteFunc(s.Mounts, func(o specs.Mount) bool { return o.Destination == destination })
		if removed {
			continue
		}
		propagation := ""
		s.Mounts = append(s.Mounts, m.ToOCI(&propagation))
		switch propagation {
		case "rshared":
			s.Linux.RootfsPropagation = "rshared"
		case "rslave":
			if s.Linux.RootfsPropagation != "rshared" {
				s.Linux.RootfsPropagation = "rslave"
			}
		}
	}
	if len(mounts) > 0 {
		slices.SortStableFunc(s.Mounts, func(a, b specs.Mount) int {
			return strings.Count(a.Destination, "/") - strings.Count(b.Destination, "/")
		})
	}
}

func adjustLinux(s *specs.Spec, a *api.LinuxContainerAdjustment) {
	l, p := s.Linux, s.Process
	if a == nil {
		return
	}
	if l.Resources == nil {
		l.Resources = &specs.LinuxResources{}
	}
	adjustResources(l.Resources, a.GetResources())
	for _, d := range a.GetDevices() {
		path, removed := d.IsMarkedForRemoval()
		l.Devices = slices.DeleteFunc(l.Devices, func(o specs.LinuxDevice) bool { return o.Path == path })
		if removed {
			continue
		}
		l.Devices = append(l.Devices, d.ToOCI())
		l.Resources.Devices = append(l.Resources.Devices, specs.LinuxDeviceCgroup{Allow: true, Type: d.GetType(), Major: new(d.GetMajor()), Minor: new(d.GetMinor()), Access: d.AccessString()})
	}
	if path := a.GetCgroupsPath(); path != "" {
		l.CgroupsPath = path
	}
	if v := a.GetOomScoreAdj(); v != nil {
		p.OOMScoreAdj = new(int(v.GetValue()))
	}
	if v := a.GetIoPriority(); v != nil {
		if p.IOPriority = v.ToOCI(); p.IOPriority.Class == "" {
			p.IOPriority = nil
		}
	}
	if v := a.GetScheduler(); v != nil {
		p.Scheduler = v.ToOCI()
	}
	if v := a.GetMemoryPolicy(); v != nil {
		if l.MemoryPolicy = v.ToOCI(); l.MemoryPolicy.Mode == "" {
			l.MemoryPolicy = nil
		}
	}
	if v := a.GetSeccompPolicy(); v != nil {
		l.Seccomp = seccompOf(v)
	}
	for _, n := range a.GetNamespaces() {
		kind, removed := n.IsMarkedForRemoval()
		l.Namespaces = slices.DeleteFunc(l.Namespaces, func(o specs.LinuxNamespace) bool { return string(o.Type) == kind })
		if !removed {
			l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: n.GetPath()})
		}
	}
	if v := a.GetSysctl(); len(v) > 0 {
		l.Sysctl = merged(l.Sysctl, v)
	}
	for name, d := range a.GetNetDevices() {
		if name, removed := api.IsMarkedForRemoval(name); removed {
			delete(l.NetDevices, name)
			continue
		}
		if l.NetDevices == nil {
			l.NetDevices = map[string]specs.LinuxNetDevice{}
		}
		l.NetDevices[name] = d.ToOCI()
	}
	adjustRdt(l, a.GetRdt())
}

func adjustRdt(l *specs.Linux, r *api.LinuxRdt) {
	if r.GetRemove() {
		l.IntelRdt = nil
	}
	if r.GetClosId() == nil && r.GetSchemata() == nil && r.GetEnableMonitoring() == nil {
		return
	}
	if l.IntelRdt == nil {
		l.IntelRdt = &specs.LinuxIntelRdt{}
	}
	if v := r.GetClosId(); v != nil {
		l.IntelRdt.ClosID = v.GetValue()
	}
	if v := r.GetSchemata(); v != nil {
		l.IntelRdt.Schemata = slices.Clone(v.GetValue())
	}
	if v := r.GetEnableMonitoring(); v != nil {
		l.IntelRdt.EnableMonitoring = v.GetValue()
	}
}

func adjustResources(to *specs.LinuxResources, r *api.LinuxResources) {
	if r == nil {
		return
	}
	from := r.ToOCI()
	if to.CPU == nil {
		to.CPU = &specs.LinuxCPU{}
	}
	c, fc := to.CPU, from.CPU
	set(&c.Shares, fc.Shares)
	set(&c.Quota, fc.Quota)
	set(&c.Period, fc.Period)
	set(&c.RealtimeRuntime, fc.RealtimeRuntime)
	set(&c.RealtimePeriod, fc.RealtimePeriod)
	if fc.Cpus != "" {
		c.Cpus = fc.Cpus
	}
	if fc.Mems != "" {
		c.Mems = fc.Mems
	}
	if to.Memory == nil {
		to.Memory = &specs.LinuxMemory{}
	}
	if v := from.Memory.Limit; v != nil && *v != 0 {
		to.Memory.Limit, to.Memory.Swap = v, v // no swap, unless it is set too
	}
	set(&to.Memory.Swap, from.Memory.Swap)
	for _, h := range from.HugepageLimits {
		to.HugepageLimits = slices.DeleteFunc(to.HugepageLimits, func(o specs.LinuxHugepageLimit) bool { return o.Pagesize == h.Pagesize })
		to.HugepageLimits = append(to.HugepageLimits, h)
	}
	if len(from.Unified) > 0 && to.Unified == nil {
		to.Unified = map[string]string{}
	}
	maps.Copy(to.Unified, from.Unified)
	if from.Pids != nil {
		to.Pids = from.Pids
	}
	to.Devices = append(to.Devices, from.Devices...)
}

// set sets *to if from is set.
func set[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

func seccompOf(p *api.LinuxSeccomp) *specs.LinuxSeccomp {
	out := &specs.LinuxSeccomp{
		DefaultAction: specs.LinuxSeccompAction(p.GetDefaultAction()), ListenerPath: p.GetListenerPath(), ListenerMetadata: p.GetListenerMetadata(),
		Syscalls: api.ToOCILinuxSyscalls(p.GetSyscalls()),
	}
	if v := p.GetDefaultErrno(); v != nil {
		out.DefaultErrnoRet = new(uint(v.GetValue()))
	}
	for _, a := range p.GetArchitectures() {
		out.Architectures = append(out.Architectures, specs.Arch(a))
	}
	for _, f := range p.GetFlags() {
		out.Flags = append(out.Flags, specs.LinuxSeccompFlag(f))
	}
	return out
}
