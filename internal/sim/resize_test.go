package sim

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// setMemory gives the first container of a pod memory, in Mi.
func setMemory(o *v1.Pod, size string) error {
	if n, err := strconv.Atoi(size); err != nil || n < 1 {
		return fmt.Errorf("memory %q: want Mi", size)
	}
	o.Spec.Containers[0].Resources = guaranteed(v1.ResourceList{v1.ResourceMemory: resource.MustParse(size + "Mi")})
	return nil
}

// doResize is NAME SIZE: a pod of the API server with mem asks for that many Mi.
func (m *machine) doResize(s step) error {
	m.mu.Lock()
	var err error
	if p := m.newest(s.arg(0)); p != nil && p.resizable && p.wanted {
		o := p.object.DeepCopy()
		o.Generation++
		if err = setMemory(o, s.arg(1)); err == nil {
			p.object, p.trouble = o, time.Now()
		}
	}
	m.mu.Unlock()
	m.tell()
	return err
}

// judgeMemory looks at the memory of a pod at rest. m.mu is held.
func (m *machine) judgeMemory(p *pod) {
	if !p.resizable {
		return
	}
	c := p.object.Spec.Containers[0]
	for _, i := range m.made {
		if i.uid != p.object.UID || i.name != c.Name || !m.runs(i) {
			continue
		}
		if has, want := m.status(i.id).GetResources().GetLinux().GetMemoryLimitInBytes(), c.Resources.Limits.Memory().Value(); has != want {
			m.wrong("%s/%s has %d Mi of memory, wants %d", p.object.Name, c.Name, has>>20, want>>20)
		}
	}
}
