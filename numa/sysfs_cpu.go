package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
)

// noCache marks a CPU without a known cache.
const noCache = -1

// cpu reads one CPU, except its node.
func (r reader) cpu(id int) (CPU, error) {
	dir := path.Join(cpuDir(id), "topology")
	name := path.Join(dir, "core_cpus_list")
	siblings, err := r.cpus(name)
	if errors.Is(err, fs.ErrNotExist) { // the file's name before Linux 5.3
		name = path.Join(dir, "thread_siblings_list")
		siblings, err = r.cpus(name)
	}
	if err != nil {
		return CPU{}, err
	}
	if !siblings.Has(id) {
		return CPU{}, fmt.Errorf("%s is %q; want a list with CPU %d", name, siblings, id)
	}
	socket, err := r.number(path.Join(dir, "physical_package_id"))
	if err != nil {
		return CPU{}, err
	}
	cache, err := r.cache(id)
	if err != nil {
		return CPU{}, err
	}
	// The kernel writes -1 if the firmware does not report socket numbers.
	return CPU{ID: id, Core: first(siblings), Cache: cache, Socket: max(socket, 0)}, nil
}

// cache returns the smallest ID among the CPUs that share the last-level cache of a CPU. The
// kernel has no files for attributes that it does not know; a cache with a missing attribute is
// ignored.
func (r reader) cache(id int) (int, error) {
	dir := path.Join(cpuDir(id), "cache")
	indexes, err := r.numbered(dir, "index")
	if err != nil {
		return 0, err
	}
	last, found := 0, noCache
	for _, i := range indexes {
		at := path.Join(dir, "index"+strconv.Itoa(i))
		kind, err := r.text(path.Join(at, "type"))
		if errors.Is(err, fs.ErrNotExist) || err == nil && kind == "Instruction" {
			continue
		}
		if err != nil {
			return 0, err
		}
		if kind != "Data" && kind != "Unified" {
			return 0, fmt.Errorf("%s/type is %q; want Data, Instruction or Unified", at, kind)
		}
		level, err := r.number(path.Join(at, "level"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		shared, err := r.cpus(path.Join(at, "shared_cpu_list"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if !shared.Has(id) {
			return 0, fmt.Errorf("%s/shared_cpu_list is %q; want a list with CPU %d", at, shared, id)
		}
		if level > last {
			last, found = level, first(shared)
		}
	}
	return found, nil
}

func first(s CPUSet) int {
	for id := range s.All() {
		return id
	}
	return -1
}

// siblingsAgree checks that the CPUs of a core agree on the first CPU of the core. It returns an
// error if the CPU that another one names as its first is online and names a different one. cpus
// must be sorted by ID.
func siblingsAgree(cpus []CPU) error {
	for _, c := range cpus {
		i, online := slices.BinarySearchFunc(cpus, c.Core, func(c CPU, id int) int { return c.ID - id })
		if online && cpus[i].Core != c.Core {
			return fmt.Errorf("%s/topology: CPU %d is of the core that begins with CPU %d, which is of the core that begins with CPU %d",
				cpuDir(c.ID), c.ID, c.Core, cpus[i].Core)
		}
	}
	return nil
}

// cacheBySocket gives all CPUs of a socket the same cache if their caches are unknown.
func cacheBySocket(cpus []CPU) {
	lowest := map[int]int{}
	for i, c := range cpus {
		if c.Cache != noCache {
			continue
		}
		if _, ok := lowest[c.Socket]; !ok {
			lowest[c.Socket] = c.ID
		}
		cpus[i].Cache = lowest[c.Socket]
	}
}
