package localapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxData limits the data of a ConfigMap or a Secret, in bytes, as in the API server.
	maxData = 1 << 20
	// maxReporter limits the name of the instance that reports an event, and the event's action
	// and reason, in bytes, as in the API server.
	maxReporter = 128
)

// check returns the mistakes in the object o, which is new if old is nil and otherwise replaces
// old. subresource is the one through which o was written; "" for the object itself.
func (s *Server) check(k *kind, subresource string, o, old object) field.ErrorList {
	errs := checkMeta(k, o, old)
	if subresource == "status" {
		return append(errs, s.checkStatus(o, old)...)
	}
	spec := field.NewPath("spec")
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
	case *v1.Namespace:
		if old == nil {
			errs = append(errs, checkFinalizers(o.Spec.Finalizers, spec)...)
		}
	case *v1.PersistentVolume:
		p, _ := old.(*v1.PersistentVolume)
		errs = append(errs, checkVolume(o, p, spec)...)
	case *v1.PersistentVolumeClaim:
		p, _ := old.(*v1.PersistentVolumeClaim)
		errs = append(errs, checkClaim(o, p, spec)...)
	case *resourcev1.ResourceClaim:
		p, _ := old.(*resourcev1.ResourceClaim)
		errs = append(errs, s.checkResourceClaim(o, p, spec)...)
	case *coordinationv1.Lease:
		errs = append(errs, checkLease(o)...)
	case *v1.Event:
		errs = append(errs, checkEvent(o)...)
	}
	return errs
}

// checkMeta checks the metadata.
func checkMeta(k *kind, o, old object) field.ErrorList {
	meta := field.NewPath("metadata")
	name := apivalidation.NameIsDNSSubdomain
	switch k.resource {
	case "namespaces":
		name = apivalidation.NameIsDNSLabel
	case "events": // names of events are not used in paths
		name = func(name string, prefix bool) []string {
			if prefix {
				return names.IsPathSegmentPrefix(name)
			}
			return names.IsPathSegmentName(name)
		}
	}
	errs := apivalidation.ValidateObjectMetaAccessor(o, k.namespaced, name, meta)
	if old != nil && old.GetDeletionTimestamp() != nil {
		errs = append(errs, apivalidation.ValidateNoNewFinalizers(o.GetFinalizers(), old.GetFinalizers(), meta.Child("finalizers"))...)
	}
	if k.resource == "leases" || k.resource == "events" { // the API server allows any name
		return errs
	}
	return append(errs, checkFinalizers(o.GetFinalizers(), meta)...)
}

// checkFinalizers checks that finalizers have a domain, or are Kubernetes' own.
func checkFinalizers[F ~string](list []F, of *field.Path) (errs field.ErrorList) {
	own := []string{string(v1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	for i, f := range list {
		name, p := string(f), of.Child("finalizers").Index(i)
		for _, m := range validation.IsQualifiedName(name) {
			errs = append(errs, field.Invalid(p, name, m))
		}
		if !slices.Contains(own, name) && !strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(p, name, "must be DOMAIN/NAME, or one of kubernetes, orphan and foregroundDeletion"))
		}
	}
	return errs
}

// checkKeys checks the keys, which become file names, and the total size of the values.
func checkKeys[V string | []byte](p *field.Path, data map[string]V) (errs field.ErrorList, size int) {
	for _, n := range slices.Sorted(maps.Keys(data)) {
		size += len(data[n])
		for _, m := range validation.IsConfigMapKey(n) {
			errs = append(errs, field.Invalid(p.Key(n), n, m))
		}
	}
	return errs, size
}

// checkImmutable checks an update of a ConfigMap or Secret against its field immutable. same
// says whether the data is unchanged.
func checkImmutable(was, is *bool, same bool) (errs field.ErrorList) {
	const never = "field is immutable when `immutable` is set"
	if deref(was) && !deref(is) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), never))
	}
	if deref(was) && !same {
		errs = append(errs, field.Forbidden(field.NewPath("data"), never))
	}
	return errs
}

func checkConfigMap(c, old *v1.ConfigMap) field.ErrorList {
	errs, size := checkKeys(field.NewPath("data"), c.Data)
	binary, more := checkKeys(field.NewPath("binaryData"), c.BinaryData)
	errs = append(errs, binary...)
	for n := range c.Data {
		if _, twice := c.BinaryData[n]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(n), n, "duplicate of key present in binaryData"))
		}
	}
	if size+more > maxData {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxData))
	}
	if old == nil {
		return errs
	}
	return append(errs, checkImmutable(old.Immutable, c.Immutable, maps.Equal(c.Data, old.Data) && equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData))...)
}

// secretKeys are the keys that a Secret of a type must have.
var secretKeys = map[v1.SecretType][]string{
	v1.SecretTypeDockerConfigJson: {v1.DockerConfigJsonKey}, v1.SecretTypeDockercfg: {v1.DockerConfigKey}, v1.SecretTypeTLS: {v1.TLSCertKey, v1.TLSPrivateKeyKey},
}

func checkSecret(c, old *v1.Secret) field.ErrorList {
	data := field.NewPath("data")
	errs, size := checkKeys(data, c.Data)
	if size > maxData {
		errs = append(errs, field.TooLong(data, "", maxData))
	}
	for _, name := range secretKeys[c.Type] {
		if _, ok := c.Data[name]; !ok {
			errs = append(errs, field.Required(data.Key(name), ""))
		}
	}
	switch c.Type {
	case v1.SecretTypeServiceAccountToken:
		if c.Annotations[v1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(v1.ServiceAccountNameKey), ""))
		}
	case v1.SecretTypeBasicAuth:
		_, name := c.Data[v1.BasicAuthUsernameKey]
		if _, password := c.Data[v1.BasicAuthPasswordKey]; !name && !password {
			errs = append(errs, field.Required(data.Key(v1.BasicAuthUsernameKey), "or "+v1.BasicAuthPasswordKey))
		}
	case v1.SecretTypeSSHAuth:
		if len(c.Data[v1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(v1.SSHAuthPrivateKey), ""))
		}
	case v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg:
		name := secretKeys[c.Type][0]
		if text, ok := c.Data[name]; ok && json.Unmarshal(text, &map[string]json.RawMessage{}) != nil {
			errs = append(errs, field.Invalid(data.Key(name), "<secret contents redacted>", "must be a JSON object"))
		}
	}
	if old == nil {
		return errs
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Type, old.Type, field.NewPath("type"))...)
	return append(errs, checkImmutable(old.Immutable, c.Immutable, equality.Semantic.DeepEqual(c.Data, old.Data))...)
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

// checkEvent checks an event. An event with a time in microseconds has the newer form, which must
// have a reporter and an action.
func checkEvent(e *v1.Event) (errs field.ErrorList) {
	add := func(name, value, text string) { errs = append(errs, field.Invalid(field.NewPath(name), value, text)) }
	about := e.InvolvedObject.Namespace
	if e.EventTime.IsZero() {
		if about != e.Namespace && (about != "" || e.Namespace != v1.NamespaceDefault) {
			add("involvedObject.namespace", about, "does not match event.namespace")
		}
		return errs
	}
	if about == "" && e.Namespace != v1.NamespaceDefault && e.Namespace != "kube-system" {
		add("involvedObject.namespace", about, "does not match event.namespace")
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"reportingComponent", e.ReportingController, 0}, {"reportingInstance", e.ReportingInstance, maxReporter}, {"action", e.Action, maxReporter}, {"reason", e.Reason, maxReporter},
	} {
		if f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), ""))
		} else if f.most > 0 && len(f.value) > f.most {
			errs = append(errs, field.TooLong(field.NewPath(f.name), "", f.most))
		}
	}
	for _, m := range validation.IsQualifiedName(e.ReportingController) {
		add("reportingComponent", e.ReportingController, m)
	}
	if len(e.Message) > maxMessage {
		errs = append(errs, field.TooLong(field.NewPath("message"), "", maxMessage))
	}
	return errs
}

// checkNewEvent checks what events.k8s.io/v1 requires in addition to checkEvent.
func checkNewEvent(now, before object) (errs field.ErrorList) {
	e := now.(*v1.Event)
	at := field.NewPath
	errs = checkFinalizers(e.Finalizers, at("metadata"))
	if old, ok := before.(*v1.Event); ok {
		if !equality.Semantic.DeepEqual(e.Series, old.Series) {
			errs = append(errs, checkSeries(e.Series)...)
		}
		if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
			errs = append(errs, apivalidation.ValidateImmutableField(e.EventTime, old.EventTime, at("eventTime"))...)
		}
		for _, f := range []struct {
			name    string
			is, was any
		}{
			{"involvedObject", e.InvolvedObject, old.InvolvedObject}, {"reason", e.Reason, old.Reason}, {"message", e.Message, old.Message},
			{"source", e.Source, old.Source}, {"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp}, {"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
			{"count", e.Count, old.Count}, {"type", e.Type, old.Type}, {"action", e.Action, old.Action}, {"related", e.Related, old.Related},
			{"reportingController", e.ReportingController, old.ReportingController}, {"reportingInstance", e.ReportingInstance, old.ReportingInstance},
		} {
			errs = append(errs, apivalidation.ValidateImmutableField(f.is, f.was, at(f.name))...)
		}
		return errs
	}
	errs = append(errs, apivalidation.ValidateObjectMetaAccessor(e, true, apivalidation.NameIsDNSSubdomain, at("metadata"))...)
	errs = append(errs, checkSeries(e.Series)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(at("eventTime"), ""))
	}
	if e.Type != v1.EventTypeNormal && e.Type != v1.EventTypeWarning {
		errs = append(errs, field.NotSupported(at("type"), e.Type, []string{v1.EventTypeNormal, v1.EventTypeWarning}))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()}, {"count", e.Count != 0}, {"source", e.Source != v1.EventSource{}},
	} {
		if f.set {
			errs = append(errs, field.Invalid(at(f.name), "", "needs to be unset"))
		}
	}
	return errs
}

func checkSeries(s *v1.EventSeries) (errs field.ErrorList) {
	p := field.NewPath("series")
	if s != nil && s.Count < 2 {
		errs = append(errs, field.Invalid(p.Child("count"), s.Count, "should be at least 2"))
	}
	if s != nil && s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(p.Child("lastObservedTime"), ""))
	}
	return errs
}
