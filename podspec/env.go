package podspec

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// environment is an ordered set of variables. A name keeps its first position and its last
// value.
type environment struct {
	// names is in the order in which variables were first set, so that equal inputs give equal
	// output. The kubelet's order is random.
	names  []string
	values map[string]string
}

// set sets a variable or replaces its value.
func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// get returns a variable's value, and whether the variable is set, possibly to "".
func (e *environment) get(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

// list returns the variables as CRI messages.
func (e *environment) list() []*runtimeapi.KeyValue {
	out := make([]*runtimeapi.KeyValue, 0, len(e.names))
	for _, n := range e.names {
		out = append(out, &runtimeapi.KeyValue{Key: n, Value: []byte(e.values[n])})
	}
	return out
}

// env computes a container's variables. It applies envFrom in order, then env in order. Variables
// of services and plugins are added for names that are not set yet.
func env(in Input, c *v1.Container, path *field.Path, col *collector) *boundedEnv {
	e := &boundedEnv{environment: environment{values: map[string]string{}}, container: c.Name, col: col}
	// If the environment is full, the problem is recorded; further variables would only repeat
	// it.
	for i := 0; i < len(c.EnvFrom) && !e.full; i++ {
		envFrom(in, &c.EnvFrom[i], path.Child("envFrom").Index(i), e)
	}
	services := serviceEnv(in)
	// References resolve to the variables set so far, then to the variables of services.
	lookup := func(name string) (string, bool) {
		if v, ok := e.get(name); ok {
			return v, true
		}
		return services.get(name)
	}
	// Shared by all variables of the container, so that each file is read once.
	files := &envFiles{volumes: in.Volumes, open: in.ReadFile}
	for i := 0; i < len(c.Env) && !e.full; i++ {
		v := &c.Env[i]
		p := path.Child("env").Index(i)
		if v.ValueFrom != nil {
			if value, ok := valueFrom(in, c, v, files, p.Child("valueFrom"), e); ok {
				e.put(p, v.Name, value)
			}
			continue
		}
		// Unknown references stay unchanged, as the API documents.
		value, _, ok := podmeta.ExpandWithin(v.Value, maxString, lookup)
		if !ok {
			// fits records the problem, since a value of this length is always too long.
			e.fits(p.Child("value"), v.Name, maxString)
			continue
		}
		e.put(p.Child("value"), v.Name, value)
	}
	// Set last, and only for names that are still free: the pod's own variables take precedence.
	for _, name := range services.names {
		if _, ok := e.get(name); !ok {
			e.put(field.NewPath("spec", "enableServiceLinks"), name, services.values[name])
		}
	}
	for _, v := range in.Attached[c.Name].Env {
		if _, ok := e.get(v.Name); !ok {
			e.put(path.Child("resources"), v.Name, v.Value)
		}
	}
	// The kernel ends a variable at its first zero byte (environ(7)), so the program would get a
	// truncated value.
	for _, name := range e.names {
		if strings.Contains(e.values[name], "\x00") {
			col.add(path, "container %q: the value of variable %q has a NUL byte, which no variable can have", c.Name, clip(name))
			break // there may be thousands; one problem is enough
		}
	}
	return e
}

// isOptional returns the value of the field optional of a source. If it is nil, the source is
// required.
func isOptional(b *bool) bool { return b != nil && *b }

// envFrom sets a variable for every key of a ConfigMap or Secret. Keys that are invalid as names
// are skipped, as in Kubernetes.
func envFrom(in Input, src *v1.EnvFromSource, path *field.Path, e *boundedEnv) {
	switch {
	case src.ConfigMapRef != nil:
		cm := in.ConfigMaps[src.ConfigMapRef.Name]
		if cm == nil {
			// The text is the kubelet's, since people and tools search for it in events.
			if !isOptional(src.ConfigMapRef.Optional) {
				e.col.add(path.Child("configMapRef"), "configmap %q not found", src.ConfigMapRef.Name)
			}
			return
		}
		setAll(e, path, src.Prefix, "configmap "+in.Pod.Namespace+"/"+src.ConfigMapRef.Name, cm.Data, nil)
	case src.SecretRef != nil:
		s := in.Secrets[src.SecretRef.Name]
		if s == nil {
			if !isOptional(src.SecretRef.Optional) {
				e.col.add(path.Child("secretRef"), "secret %q not found", src.SecretRef.Name)
			}
			return
		}
		setAll(e, path, src.Prefix, "secret "+in.Pod.Namespace+"/"+src.SecretRef.Name, s.StringData, s.Data)
	}
}

// setAll sets a variable for every key of an object, in order. If a key is in both maps, the
// value in text is used.
func setAll(e *boundedEnv, path *field.Path, prefix, origin string, text map[string]string, raw map[string][]byte) {
	// Sorted, so that always the same variable exceeds the limit.
	keys := slices.AppendSeq(slices.Collect(maps.Keys(text)), maps.Keys(raw))
	slices.Sort(keys)
	var invalid []string
	for _, k := range slices.Compact(keys) {
		if e.full {
			return
		}
		name := prefix + k
		if len(validation.IsRelaxedEnvVarName(name)) > 0 {
			invalid = append(invalid, clip(k))
			continue
		}
		value, ok := text[k]
		if !ok {
			// Checked before the bytes are copied into a string.
			if !e.fits(path, name, len(raw[k])) {
				continue
			}
			value = string(raw[k])
		}
		e.put(path, name, value)
	}
	// One warning for all keys of the object: an event for each would hide others.
	if len(invalid) == 0 {
		return
	}
	more := ""
	if n := len(invalid) - maxNamed; n > 0 {
		invalid, more = invalid[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	e.col.warn(path, ReasonInvalidEnvNames, "keys [%s]%s of %s are left out: they make no valid variable name", strings.Join(invalid, ", "), more, origin)
}

// maxNamed limits the number of names that a message lists.
const maxNamed = 20

// valueFrom returns the value of a variable from its source. ok is false if the value is missing
// and optional, or if a problem was recorded.
func valueFrom(in Input, c *v1.Container, variable *v1.EnvVar, files *envFiles, path *field.Path, e *boundedEnv) (value string, ok bool) {
	src, col := variable.ValueFrom, e.col
	switch {
	case src.FieldRef != nil:
		v, err := fieldValue(in, src.FieldRef.FieldPath)
		if err != nil {
			col.add(path.Child("fieldRef", "fieldPath"), "%v", err)
			return "", false
		}
		return v, true
	case src.ResourceFieldRef != nil:
		v, err := resourceValue(in, c, src.ResourceFieldRef)
		if err != nil {
			col.add(path.Child("resourceFieldRef"), "%v", err)
			return "", false
		}
		return v, true
	case src.ConfigMapKeyRef != nil:
		ref := src.ConfigMapKeyRef
		cm := in.ConfigMaps[ref.Name]
		if cm != nil {
			if v, ok := cm.Data[ref.Key]; ok {
				return v, true
			}
		}
		// The message tells a missing key from a missing object.
		missing(path.Child("configMapKeyRef"), "configmap", ref.Name, ref.Key, cm != nil, ref.Optional, col)
	case src.SecretKeyRef != nil:
		ref := src.SecretKeyRef
		s := in.Secrets[ref.Name]
		if s != nil {
			if v, ok := s.StringData[ref.Key]; ok {
				return v, true
			}
			if v, ok := s.Data[ref.Key]; ok {
				if !e.fits(path.Child("secretKeyRef"), variable.Name, len(v)) {
					return "", false
				}
				return string(v), true
			}
		}
		missing(path.Child("secretKeyRef"), "secret", ref.Name, ref.Key, s != nil, ref.Optional, col)
	case src.FileKeyRef != nil:
		return files.value(src.FileKeyRef, path.Child("fileKeyRef"), col)
	default:
		col.add(path, "names no source that is supported: want fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or fileKeyRef")
	}
	return "", false
}

// missing records a problem for a missing value, unless the value is optional. exists reports
// whether the object exists and only the key is missing. The text is the kubelet's.
func missing(path *field.Path, kind, name, key string, exists bool, optional *bool, col *collector) {
	switch {
	case isOptional(optional):
	case exists:
		col.add(path, "couldn't find key %s in %s %q", key, kind, name)
	default:
		col.add(path, "%s %q not found", kind, name)
	}
}

// serviceEnv returns the variables of services that have an address: those of default/kubernetes,
// and those of the pod's namespace if enableServiceLinks is set.
func serviceEnv(in Input) *environment {
	e := &environment{values: map[string]string{}}
	links := in.Pod.Spec.EnableServiceLinks == nil || *in.Pod.Spec.EnableServiceLinks
	chosen := map[string]*v1.Service{}
	for _, s := range in.Services {
		// A headless service has no address.
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone {
			continue
		}
		switch {
		// A service named kubernetes in the pod's own namespace takes the place of the API
		// server's.
		case s.Namespace == in.Pod.Namespace && links:
			chosen[s.Name] = s
		case s.Namespace == metaDefault && s.Name == "kubernetes" && chosen[s.Name] == nil:
			chosen[s.Name] = s
		}
	}
	// Two services may set the same variable, as a-b and a_b do. Sorting decides which of them
	// wins.
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		oneService(e, chosen[name])
	}
	return e
}

// metaDefault is the namespace of the API server's service.
const metaDefault = "default"

// oneService sets the variables of one service, with the names that Docker links have.
func oneService(e *environment, s *v1.Service) {
	if len(s.Spec.Ports) == 0 {
		return
	}
	upper := func(n string) string { return strings.ToUpper(strings.ReplaceAll(n, "-", "_")) }
	prefix := upper(s.Name)
	ip := s.Spec.ClusterIP
	port := func(p int32) string { return strconv.Itoa(int(p)) }
	e.set(prefix+"_SERVICE_HOST", ip)
	// SERVICE_PORT without a port name is the first port.
	e.set(prefix+"_SERVICE_PORT", port(s.Spec.Ports[0].Port))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			e.set(prefix+"_SERVICE_PORT_"+upper(p.Name), port(p.Port))
		}
	}
	for i, p := range s.Spec.Ports {
		proto := string(v1.ProtocolTCP)
		if p.Protocol != "" {
			proto = string(p.Protocol)
		}
		url := strings.ToLower(proto) + "://" + net.JoinHostPort(ip, port(p.Port))
		if i == 0 {
			e.set(prefix+"_PORT", url)
		}
		each := prefix + "_PORT_" + port(p.Port) + "_" + strings.ToUpper(proto)
		e.set(each, url)
		e.set(each+"_PROTO", strings.ToLower(proto))
		e.set(each+"_PORT", port(p.Port))
		e.set(each+"_ADDR", ip)
	}
}
