// Package provisioner makes persistent volumes for claims, by a CSI driver, and makes
// them larger: what a cluster has programs of their own for. It looks at everything again and again,
// which is enough for a test's cluster.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Config says for whom. All fields are required.
type Config struct {
	Kubeconfig string
	Driver     string // its name
	Socket     string // its path
	Log        func(error)
}

// What Kubernetes has for claims and volumes.
const (
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	fsTypeKey     = "csi.storage.k8s.io/fstype"
	pause         = 300 * time.Millisecond
)

type provisioner struct {
	Config
	api kubernetes.Interface
	csi csi.ControllerClient
}

// Run works until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	rest, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return err
	}
	rest.QPS, rest.Burst = 100, 200
	api, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	p := &provisioner{Config: cfg, api: api, csi: csi.NewControllerClient(conn)}
	for {
		if err := p.once(ctx); err != nil && ctx.Err() == nil {
			cfg.Log(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// once makes what is missing, and deletes what is no longer wanted.
func (p *provisioner) once(ctx context.Context) error {
	classes, err := p.api.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	own := map[string]*storage.StorageClass{}
	for i, c := range classes.Items {
		if c.Provisioner == p.Driver {
			own[c.Name] = &classes.Items[i]
		}
	}
	claims, err := p.api.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	volumes, err := p.api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range claims.Items {
		c := &claims.Items[i]
		class := own[className(c)]
		if class == nil || c.Spec.VolumeName != "" || c.DeletionTimestamp != nil ||
			slices.ContainsFunc(volumes.Items, func(v v1.PersistentVolume) bool { return v.Name == nameOf(c) }) {
			continue
		}
		late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer
		if late && c.Annotations[selectedNode] == "" {
			continue
		}
		if err := p.provision(ctx, c, class); err != nil {
			errs = append(errs, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err))
		}
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		at := slices.IndexFunc(volumes.Items, func(v v1.PersistentVolume) bool { return v.Name == c.Spec.VolumeName })
		if at < 0 || c.DeletionTimestamp != nil || volumes.Items[at].Annotations[provisionedBy] != p.Driver {
			continue
		}
		if err := p.expand(ctx, c, &volumes.Items[at]); err != nil {
			errs = append(errs, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err))
		}
	}
	for i := range volumes.Items {
		v := &volumes.Items[i]
		if v.Annotations[provisionedBy] != p.Driver || v.Status.Phase != v1.VolumeReleased || v.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
			continue
		}
		if err := p.delete(ctx, v); err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}

func className(c *v1.PersistentVolumeClaim) string {
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

func nameOf(c *v1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// modes are those of CSI for a volume's.
var modes = map[v1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	v1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	v1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	v1.ReadOnlyMany:     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	v1.ReadWriteMany:    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

func (p *provisioner) provision(ctx context.Context, c *v1.PersistentVolumeClaim, class *storage.StorageClass) error {
	size := c.Spec.Resources.Requests[v1.ResourceStorage]
	req := &csi.CreateVolumeRequest{Name: nameOf(c), CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()}, Parameters: map[string]string{}}
	fsType := class.Parameters[fsTypeKey]
	for k, v := range class.Parameters {
		if k != fsTypeKey {
			req.Parameters[k] = v
		}
	}
	block := c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == v1.PersistentVolumeBlock
	for _, m := range c.Spec.AccessModes {
		capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: modes[m]}}
		if block {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: class.MountOptions}}
		}
		req.VolumeCapabilities = append(req.VolumeCapabilities, capability)
	}
	if s := c.Spec.DataSource; s != nil {
		if s.Kind != "PersistentVolumeClaim" {
			return fmt.Errorf("dataSource of kind %s is not supported here", s.Kind)
		}
		from, err := p.api.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pv, err := p.api.CoreV1().PersistentVolumes().Get(ctx, from.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pv.Spec.CSI == nil {
			return fmt.Errorf("dataSource %s is of another driver", s.Name)
		}
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: pv.Spec.CSI.VolumeHandle},
		}}
	}
	resp, err := p.csi.CreateVolume(ctx, req)
	if err != nil {
		return err
	}
	v := resp.GetVolume()
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(c), Annotations: map[string]string{provisionedBy: p.Driver}},
		Spec: v1.PersistentVolumeSpec{
			Capacity:    v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(v.GetCapacityBytes(), resource.BinarySI)},
			AccessModes: c.Spec.AccessModes, VolumeMode: c.Spec.VolumeMode, MountOptions: class.MountOptions, StorageClassName: class.Name,
			ClaimRef:               &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: p.Driver, VolumeHandle: v.GetVolumeId(), FSType: fsType, VolumeAttributes: v.GetVolumeContext()}},
			NodeAffinity:           affinity(v.GetAccessibleTopology()),
		},
	}
	pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		pv.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	if block {
		pv.Spec.CSI.FSType = ""
	}
	_, err = p.api.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// expand makes a volume as large as its claim wants it. The node is always next, also
// where the driver says that it has nothing to do, and told so by the claim's status
// (KEP-1790).
func (p *provisioner) expand(ctx context.Context, c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	size, has := c.Spec.Resources.Requests[v1.ResourceStorage], pv.Spec.Capacity[v1.ResourceStorage]
	if c.Status.Phase != v1.ClaimBound || size.Cmp(has) <= 0 {
		return nil
	}
	resp, err := p.csi.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: pv.Spec.CSI.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
	})
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	if c.Status.AllocatedResources == nil {
		c.Status.AllocatedResources = v1.ResourceList{}
	}
	c.Status.AllocatedResources[v1.ResourceStorage] = size
	c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	c.Status.Conditions = append(slices.DeleteFunc(c.Status.Conditions, func(o v1.PersistentVolumeClaimCondition) bool {
		return o.Type == v1.PersistentVolumeClaimFileSystemResizePending
	}), v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()})
	if _, err := p.api.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
		return err
	}
	pv = pv.DeepCopy()
	pv.Spec.Capacity[v1.ResourceStorage] = *resource.NewQuantity(resp.GetCapacityBytes(), resource.BinarySI)
	_, err = p.api.CoreV1().PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{})
	return err
}

// affinity says which nodes have a volume.
func affinity(list []*csi.Topology) *v1.VolumeNodeAffinity {
	if len(list) == 0 {
		return nil
	}
	var terms []v1.NodeSelectorTerm
	for _, t := range list {
		var term v1.NodeSelectorTerm
		for k, v := range t.GetSegments() {
			term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: k, Operator: v1.NodeSelectorOpIn, Values: []string{v}})
		}
		terms = append(terms, term)
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
}

func (p *provisioner) delete(ctx context.Context, v *v1.PersistentVolume) error {
	if _, err := p.csi.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle}); err != nil {
		return err
	}
	err := p.api.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
