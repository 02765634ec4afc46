package localapi

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

// maxData is what a ConfigMap or a Secret may hold, in bytes; the API server's.
const maxData = 1 << 20

// prepareCreate fills in what a new object of a kind gets, and what nobody may choose.
func (s *Server) prepareCreate(k *kind, o object) error {
	switch o := o.(type) {
	case *v1.Pod:
		newPod(o)
	case *v1.Namespace:
		newNamespace(o)
	case *v1.PersistentVolume:
		o.Status = v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable}
	case *v1.PersistentVolumeClaim:
		o.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
	case *v1.Event:
		if o.InvolvedObject.Namespace != o.Namespace && (o.InvolvedObject.Namespace != "" || o.Namespace != v1.NamespaceDefault) {
			return invalid(k, o.Name, field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), o.InvolvedObject.Namespace, "must be that of the event")})
		}
	}
	defaults(o)
	return nil
}

// defaults fills in what the API has defaults for.
func defaults(o object) {
	switch o := o.(type) {
	case *v1.Pod:
		defaultPod(o)
	case *v1.Secret:
		if len(o.StringData) > 0 {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			for name, v := range o.StringData {
				o.Data[name] = []byte(v)
			}
			o.StringData = nil
		}
		if o.Type == "" {
			o.Type = v1.SecretTypeOpaque
		}
	case *v1.PersistentVolume:
		if o.Spec.PersistentVolumeReclaimPolicy == "" {
			o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}
		setPtr(&o.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
		if o.Status.Phase == "" || o.Status.Phase == v1.VolumeAvailable || o.Status.Phase == v1.VolumeBound {
			o.Status.Phase = v1.VolumeAvailable
			if o.Spec.ClaimRef != nil {
				o.Status.Phase = v1.VolumeBound
			}
		}
	case *v1.PersistentVolumeClaim:
		setPtr(&o.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
		// Nobody but who writes the claim binds it here.
		if o.Spec.VolumeName != "" && o.Status.Phase != v1.ClaimLost {
			o.Status.Phase, o.Status.AccessModes = v1.ClaimBound, o.Spec.AccessModes
			if o.Status.Capacity == nil {
				o.Status.Capacity = maps.Clone(o.Spec.Resources.Requests)
			}
		} else if o.Status.Phase == "" {
			o.Status.Phase = v1.ClaimPending
		}
	case *v1.Namespace:
		if o.Status.Phase == "" {
			o.Status.Phase = v1.NamespaceActive
		}
	case *v1.Event:
		if o.Count == 0 && o.Series == nil && o.EventTime.IsZero() {
			o.Count = 1
		}
	}
}

func setPtr[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// prepareUpdate puts back what a writer of an object, or of one of its subresources, may
// not choose.
func (s *Server) prepareUpdate(k *kind, subresource string, o, old object) error {
	objects.KeepServers(o, old)
	switch subresource {
	case "":
		if v := objects.Field(o, "Status"); v.IsValid() {
			v.Set(objects.Field(old, "Status"))
		}
		if p, ok := o.(*v1.Pod); ok && p.Spec.NodeName == "" {
			p.Spec.NodeName = old.(*v1.Pod).Spec.NodeName
		}
		if n, ok := o.(*v1.Node); ok {
			before := old.(*v1.Node)
			want := before.Spec.DeepCopy()
			want.Unschedulable = n.Spec.Unschedulable
			if !equality.Semantic.DeepEqual(&n.Spec, want) {
				return invalid(k, o.GetName(), field.ErrorList{field.Forbidden(field.NewPath("spec"), "only unschedulable may be changed, and labels and annotations; the rest is what the agent's configuration says")})
			}
		}
	case "status":
		status := objects.Field(o, "Status")
		kept := reflect.New(status.Type()).Elem()
		kept.Set(status)
		overwrite(o, old)
		objects.Field(o, "Status").Set(kept)
	case "finalize":
		overwrite(o, old)
	case "ephemeralcontainers", "resize":
		return s.preparePodPart(k, subresource, o.(*v1.Pod), old.(*v1.Pod))
	}
	return nil
}

// overwrite makes an object what another is, but for who has its fields.
func overwrite(o, old object) {
	fields := o.GetManagedFields()
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	if fields != nil {
		o.SetManagedFields(fields)
	}
}

// check returns the mistakes of an object that is new, or takes the place of old.
func (s *Server) check(k *kind, o, old object) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := checkMeta(k, o, meta)
	if old != nil {
		errs = append(errs, metavalidation.ValidateManagedFields(o.GetManagedFields(), meta.Child("managedFields"))...)
	}
	switch o := o.(type) {
	case *v1.Pod:
		p, _ := old.(*v1.Pod)
		errs = append(errs, s.checkPod(o, p)...)
	case *v1.ConfigMap:
		p, _ := old.(*v1.ConfigMap)
		errs = append(errs, checkConfigMap(o, p)...)
	case *v1.Secret:
		p, _ := old.(*v1.Secret)
		errs = append(errs, checkSecret(o, p)...)
	case *v1.PersistentVolume:
		if n := sources(o.Spec.PersistentVolumeSource); n != 1 {
			errs = append(errs, field.Required(field.NewPath("spec"), fmt.Sprintf("has %d sources; want one, such as local or nfs", n)))
		}
		if _, ok := o.Spec.Capacity[v1.ResourceStorage]; !ok {
			errs = append(errs, field.Required(field.NewPath("spec", "capacity"), "storage"))
		}
		if len(o.Spec.AccessModes) == 0 {
			errs = append(errs, field.Required(field.NewPath("spec", "accessModes"), ""))
		}
	case *v1.PersistentVolumeClaim:
		if len(o.Spec.AccessModes) == 0 {
			errs = append(errs, field.Required(field.NewPath("spec", "accessModes"), "at least 1 access mode is required"))
		}
		if _, ok := o.Spec.Resources.Requests[v1.ResourceStorage]; !ok {
			errs = append(errs, field.Required(field.NewPath("spec", "resources").Key("storage"), ""))
		}
	case *coordinationv1.Lease:
		errs = append(errs, checkLease(o)...)
	}
	return errs
}

// checkMeta checks what all objects have.
func checkMeta(k *kind, o object, meta *field.Path) field.ErrorList {
	var errs field.ErrorList
	add := func(p *field.Path, value any, msgs []string) {
		for _, m := range msgs {
			errs = append(errs, field.Invalid(p, value, m))
		}
	}
	switch name := o.GetName(); {
	case name == "":
		errs = append(errs, field.Required(meta.Child("name"), "name or generateName is required"))
	case k.resource == "namespaces":
		add(meta.Child("name"), name, validation.IsDNS1123Label(name))
	default:
		add(meta.Child("name"), name, validation.IsDNS1123Subdomain(name))
	}
	if g := o.GetGenerateName(); g != "" {
		check := validation.IsDNS1123Subdomain
		if k.resource == "namespaces" {
			check = validation.IsDNS1123Label
		}
		name := g
		if strings.HasSuffix(g, "-") { // letters of the server's follow
			name = g[:len(g)-1] + "a"
		}
		add(meta.Child("generateName"), g, check(name))
	}
	if k.namespaced {
		add(meta.Child("namespace"), o.GetNamespace(), validation.IsDNS1123Label(o.GetNamespace()))
	}
	errs = append(errs, metavalidation.ValidateLabels(o.GetLabels(), meta.Child("labels"))...)
	size := 0
	for _, name := range slices.Sorted(maps.Keys(o.GetAnnotations())) {
		size += len(name) + len(o.GetAnnotations()[name])
		add(meta.Child("annotations"), name, validation.IsQualifiedName(lower(name)))
	}
	if const256K := 256 << 10; size > const256K {
		errs = append(errs, field.TooLong(meta.Child("annotations"), "", const256K))
	}
	for i, f := range o.GetFinalizers() {
		add(meta.Child("finalizers").Index(i), f, validation.IsQualifiedName(f))
	}
	for i, r := range o.GetOwnerReferences() {
		if r.APIVersion == "" || r.Kind == "" || r.Name == "" || r.UID == "" {
			errs = append(errs, field.Invalid(meta.Child("ownerReferences").Index(i), r.Name, "must have apiVersion, kind, name and uid"))
		}
	}
	return errs
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// dataKey is a key of a ConfigMap or a Secret: a file's name.
var dataKey = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

func checkKeys(p *field.Path, names []string) (errs field.ErrorList) {
	for _, n := range names {
		if len(n) > 253 || !dataKey.MatchString(n) || n == "." || n == ".." || len(n) > 1 && n[:2] == ".." {
			errs = append(errs, field.Invalid(p.Key(n), n, "must have at most 253 letters, digits, '-', '_' and '.', and not begin with '..'"))
		}
	}
	return errs
}

func checkConfigMap(c, old *v1.ConfigMap) field.ErrorList {
	errs := append(checkKeys(field.NewPath("data"), slices.Sorted(maps.Keys(c.Data))), checkKeys(field.NewPath("binaryData"), slices.Sorted(maps.Keys(c.BinaryData)))...)
	size := 0
	for n, v := range c.Data {
		size += len(v)
		if _, twice := c.BinaryData[n]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(n), n, "is in binaryData as well"))
		}
	}
	for _, v := range c.BinaryData {
		size += len(v)
	}
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxData))
	}
	if old != nil && deref(old.Immutable) {
		if !deref(c.Immutable) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
		}
		if !maps.Equal(c.Data, old.Data) || !equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
		}
	}
	return errs
}

func checkSecret(c, old *v1.Secret) field.ErrorList {
	errs := checkKeys(field.NewPath("data"), slices.Sorted(maps.Keys(c.Data)))
	size := 0
	for _, v := range c.Data {
		size += len(v)
	}
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxData))
	}
	for t, name := range map[v1.SecretType]string{
		v1.SecretTypeDockerConfigJson: v1.DockerConfigJsonKey, v1.SecretTypeDockercfg: v1.DockerConfigKey, v1.SecretTypeSSHAuth: v1.SSHAuthPrivateKey,
	} {
		if _, ok := c.Data[name]; c.Type == t && !ok {
			errs = append(errs, field.Required(field.NewPath("data").Key(name), ""))
		}
	}
	if old == nil {
		return errs
	}
	if c.Type != old.Type {
		errs = append(errs, field.Invalid(field.NewPath("type"), c.Type, "field is immutable"))
	}
	if deref(old.Immutable) {
		if !deref(c.Immutable) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
		}
		if !equality.Semantic.DeepEqual(c.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
		}
	}
	return errs
}

func checkLease(l *coordinationv1.Lease) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}

// sources counts what a volume is to come from: all fields are pointers.
func sources(source any) (n int) {
	for _, v := range reflect.ValueOf(source).Fields() {
		if !v.IsNil() {
			n++
		}
	}
	return n
}

// newNamespace is one that exists.
func newNamespace(n *v1.Namespace) {
	n.Status = v1.NamespaceStatus{Phase: v1.NamespaceActive}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[v1.LabelMetadataName] = n.Name
}

// inNamespace makes the namespace of a new object, if it is not there. Events make none: they may come after the end of
// what they are about.
func (t *turn) inNamespace(k *kind, ch change) error {
	name := ch.Key.Namespace
	if _, ok := t.s.item(t.s.namespaces, key{Name: name}); ok || !k.namespaced || k.memory || ch.DryRun {
		return nil
	}
	n := madeNamespace(name)
	_, err := t.apply(change{Kind: t.s.namespaces, Key: keyOf(n), Actor: objects.Clock, Verb: objects.Create, Object: n, By: ch.By})
	return err
}

// madeNamespace is a namespace that is there because something is in it.
func madeNamespace(name string) *v1.Namespace {
	n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	begin(n)
	newNamespace(n)
	return n
}
