package csimigration_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/csimigration"
)

// An in-tree volume of an older manifest is the CSI driver's today.
func ExampleInline() {
	pv, readOnly, err := csimigration.Inline(&v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk-1", ReadOnly: true},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pv.Spec.CSI.Driver, readOnly)
	// Output: pd.csi.storage.gke.io true
}
