package node

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/kernel"
)

// hugePages returns the amount of memory reserved in huge pages of each size. A size without
// pages has 0.
func hugePages(machine *kernel.Reader) (v1.ResourceList, error) {
	all, err := machine.HugePages(context.Background())
	if err != nil {
		return nil, err
	}
	list := v1.ResourceList{}
	for _, p := range all {
		size := resource.NewQuantity(p.Size, resource.BinarySI)
		list[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(p.Size*p.Pages, resource.BinarySI)
	}
	return list, nil
}
