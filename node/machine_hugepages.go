package node

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// hugePages reads the amount of memory reserved in huge pages of each size, from a
// tree like /sys/kernel/mm/hugepages (Documentation/admin-guide/mm/hugetlbpage of
// the kernel). A size without pages has 0.
func hugePages(sys fs.FS) (v1.ResourceList, error) {
	dirs, err := fs.Glob(sys, "hugepages-*kB")
	if err != nil {
		return nil, err
	}
	list := v1.ResourceList{}
	for _, dir := range dirs {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(dir, "hugepages-"), "kB"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		text, err := fs.ReadFile(sys, path.Join(dir, "nr_hugepages"))
		if err != nil {
			return nil, err
		}
		pages, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s/nr_hugepages: %w", dir, err)
		}
		size := resource.NewQuantity(kb<<10, resource.BinarySI)
		list[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(kb<<10*pages, resource.BinarySI)
	}
	return list, nil
}
