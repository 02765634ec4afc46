package numa

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/nodewright/nodewright/internal/kernel"
)

// nodes reads the nodes into m, and sets the node of each of its CPUs.
func (r reader) nodes(m *Machine, online CPUSet) error {
	const dir = "sys/devices/system/node"
	ids, err := r.numbered(dir, "node")
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return r.onlyNode(m)
	}
	if last := ids[len(ids)-1]; last >= MaxNodes {
		return fmt.Errorf("%s/node%d: want numbers from 0 to %d", dir, last, MaxNodes-1)
	}
	nodeOf := map[int]int{}
	for _, id := range ids {
		at := path.Join(dir, "node"+strconv.Itoa(id))
		n, cpus, err := r.node(at, id, len(ids))
		if err != nil {
			return err
		}
		for cpu := range cpus.Intersect(online).All() {
			if other, taken := nodeOf[cpu]; taken {
				return fmt.Errorf("%s/cpulist has CPU %d, which node %d has too", at, cpu, other)
			}
			nodeOf[cpu] = id
		}
		m.Nodes = append(m.Nodes, n)
	}
	for i, c := range m.CPUs {
		node, ok := nodeOf[c.ID]
		if !ok {
			return fmt.Errorf("%s/node*/cpulist: none has CPU %d, which is online", dir, c.ID)
		}
		m.CPUs[i].Node = node
	}
	return nil
}

func (r reader) node(at string, id, nodes int) (Node, CPUSet, error) {
	fail := func(err error) (Node, CPUSet, error) { return Node{}, CPUSet{}, err }
	cpus, err := r.cpus(path.Join(at, "cpulist"))
	if err != nil {
		return fail(err)
	}
	n := Node{ID: id}
	total, err := r.kernel.NodeMemory(context.Background(), id)
	pages, err2 := r.kernel.NodeHugePages(context.Background(), id)
	if n.Memory, n.HugePages, err = memory(at+"/meminfo", total, pages, err, err2); err != nil {
		return fail(err)
	}
	if n.Distances, err = r.distances(path.Join(at, "distance"), nodes); err != nil {
		return fail(err)
	}
	return n, cpus, nil
}

// onlyNode reads the single node of a kernel without NUMA.
func (r reader) onlyNode(m *Machine) error {
	n := Node{Distances: []int{10}}
	info, err := r.kernel.MemInfo(context.Background())
	pages, err2 := r.kernel.HugePages(context.Background())
	if n.Memory, n.HugePages, err = memory("proc/meminfo", info.Total, pages, err, err2); err != nil {
		return err
	}
	m.Nodes = []Node{n}
	return nil
}

// memory returns a node's memory in bytes, which is in a file, and its huge pages by their size in bytes.
func memory(file string, total kernel.Amount, pages []kernel.HugePages, errs ...error) (uint64, map[uint64]uint64, error) {
	bytes, ok := total.Number()
	if err := errors.Join(errs...); err != nil || !ok {
		return 0, nil, cmp.Or(err, fmt.Errorf("%s has no line MemTotal", file))
	}
	var bySize map[uint64]uint64
	for _, p := range pages {
		if bySize == nil {
			bySize = map[uint64]uint64{}
		}
		bySize[uint64(p.Size)] = uint64(p.Pages)
	}
	return bytes, bySize, nil
}

// distances returns the distances to all nodes, or nil if the kernel has none.
func (r reader) distances(name string, nodes int) ([]int, error) {
	text, err := r.text(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var d []int
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s has %q; want numbers", name, word)
		}
		d = append(d, int(n))
	}
	if len(d) != nodes {
		return nil, fmt.Errorf("%s has %d distances; want %d, one for each node", name, len(d), nodes)
	}
	return d, nil
}
