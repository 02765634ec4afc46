package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// nodes reads the nodes into m, and sets the node of each of its CPUs.
func (r reader) nodes(m *Machine, online CPUSet) error {
	const dir = "sys/devices/system/node"
	ids, err := r.numbered(dir, "node", "")
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
	if n.Memory, err = r.memory(path.Join(at, "meminfo")); err != nil {
		return fail(err)
	}
	if n.HugePages, err = r.hugePages(path.Join(at, "hugepages")); err != nil {
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
	var err error
	if n.Memory, err = r.memory("proc/meminfo"); err != nil {
		return err
	}
	if n.HugePages, err = r.hugePages("sys/kernel/mm/hugepages"); err != nil {
		return err
	}
	m.Nodes = []Node{n}
	return nil
}

// memory returns MemTotal in bytes. The lines of a node's file begin with "Node 0".
func (r reader) memory(name string) (uint64, error) {
	text, err := r.text(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if words := strings.Fields(key); len(words) == 0 || words[len(words)-1] != "MemTotal" {
			continue
		}
		number, isKB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		kb, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil || !isKB || kb > math.MaxUint64/1024 {
			return 0, fmt.Errorf("%s has %q; want a number of kB", name, strings.TrimSpace(line))
		}
		return kb * 1024, nil
	}
	return 0, fmt.Errorf("%s has no line MemTotal", name)
}

// hugePages returns the numbers of huge pages by page size in bytes; nil without
// any sizes.
func (r reader) hugePages(dir string) (map[uint64]uint64, error) {
	sizes, err := r.numbered(dir, "hugepages-", "kB")
	if err != nil || len(sizes) == 0 {
		return nil, err
	}
	pages := map[uint64]uint64{}
	for _, kb := range sizes {
		name := path.Join(dir, fmt.Sprintf("hugepages-%dkB", kb), "nr_hugepages")
		text, err := r.text(name)
		if err != nil {
			return nil, err
		}
		size := uint64(kb) * 1024
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || size == 0 || n > math.MaxUint64/size {
			return nil, fmt.Errorf("%s is %q; want a number of pages", name, text)
		}
		pages[size] = n
	}
	return pages, nil
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
