package memmgr

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// Resource is [Memory] or huge pages of one size, by its Kubernetes name.
type Resource string

// Memory is a node's memory without its huge pages.
const Memory Resource = "memory"

const hugePrefix = "hugepages-"

// units are the suffixes of sizes, the largest first.
var units = [...]struct {
	suffix string
	bytes  uint64
}{{"Ei", 1 << 60}, {"Pi", 1 << 50}, {"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}

// HugePages returns the name of huge pages by the page size in bytes:
// "hugepages-2Mi" for 2 MiB.
func HugePages(size uint64) Resource {
	for _, u := range units {
		if size >= u.bytes && size%u.bytes == 0 {
			return Resource(hugePrefix + strconv.FormatUint(size/u.bytes, 10) + u.suffix)
		}
	}
	return hugePrefix + "0"
}

// PageSize returns the page size in bytes, and whether r is a name that [HugePages]
// returns.
func (r Resource) PageSize() (uint64, bool) {
	text, ok := strings.CutPrefix(string(r), hugePrefix)
	if !ok {
		return 0, false
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 || n > math.MaxUint64/u.bytes {
			return 0, false
		}
		return n * u.bytes, HugePages(n*u.bytes) == r
	}
	return 0, false
}

// known reports whether r is a valid resource.
func (r Resource) known() bool {
	_, huge := r.PageSize()
	return r == Memory || huge
}

// compareResources sorts memory first, then huge pages by their size.
func compareResources(a, b Resource) int {
	sizeA, _ := a.PageSize()
	sizeB, _ := b.PageSize()
	return cmp.Or(cmp.Compare(sizeA, sizeB), cmp.Compare(a, b))
}

// Amount is a number of bytes of a resource.
type Amount struct {
	Resource Resource
	Bytes    uint64
}

// amounts returns the requests in r without zeros, in the order of
// compareResources.
func amounts(r numa.Resources) []Amount {
	list := make([]Amount, 0, 1+len(r.HugePages))
	if r.Memory > 0 {
		list = append(list, Amount{Memory, r.Memory})
	}
	for size, bytes := range r.HugePages {
		if bytes > 0 {
			list = append(list, Amount{HugePages(size), bytes})
		}
	}
	slices.SortFunc(list, func(a, b Amount) int { return compareResources(a.Resource, b.Resource) })
	return list
}

// plus adds. It returns the largest number instead of overflowing.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// minus subtracts. It returns 0 instead of a negative number.
func minus(a, b uint64) uint64 { return a - min(a, b) }
