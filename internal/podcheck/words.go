package podcheck

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// word has the allowed values of an API type, such as v1.RestartPolicy.
type word struct {
	allowed []string
	// unset is true if a field that is no pointer may be empty, because the API has a default
	// for it.
	unset bool
	// pattern matches further allowed values. The last of allowed then describes these for
	// errors, and is not a value itself. If pattern is nil, there are none.
	pattern *regexp.Regexp
}

// words has all types of a pod's spec that allow only certain values. A test checks that no such
// type is missing.
var words = map[reflect.Type]word{
	of[v1.RestartPolicy]():            anyOf(v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever).orUnset(),
	of[v1.DNSPolicy]():                anyOf(v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone).orUnset(),
	of[v1.PreemptionPolicy]():         anyOf(v1.PreemptLowerPriority, v1.PreemptNever),
	of[v1.OSName]():                   anyOf(v1.Linux, v1.Windows),
	of[v1.PullPolicy]():               anyOf(v1.PullAlways, v1.PullIfNotPresent, v1.PullNever).orUnset(),
	of[v1.TerminationMessagePolicy](): anyOf(v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError).orUnset(),
	of[v1.Protocol]():                 anyOf(v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP).orUnset(),
	of[v1.URIScheme]():                anyOf(v1.URISchemeHTTP, v1.URISchemeHTTPS).orUnset(),
	of[v1.HTTPProtocol]():             anyOf(v1.HTTPProtocolHTTP1, v1.HTTPProtocolHTTP2),
	of[v1.GRPCProbeMode]():            anyOf(v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS),
	of[v1.Signal]():                   signals(),

	of[v1.ContainerRestartPolicy]():                  anyOf(v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever),
	of[v1.ContainerRestartRuleAction]():              anyOf(v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers),
	of[v1.ContainerRestartRuleOnExitCodesOperator](): anyOf(v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
	of[v1.ResourceResizeRestartPolicy]():             anyOf(v1.NotRequired, v1.RestartContainer),

	of[v1.SeccompProfileType]():       anyOf(v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeUnconfined),
	of[v1.AppArmorProfileType]():      anyOf(v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeUnconfined),
	of[v1.ProcMountType]():            anyOf(v1.DefaultProcMount, v1.UnmaskedProcMount),
	of[v1.SupplementalGroupsPolicy](): anyOf(v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict),
	of[v1.PodFSGroupChangePolicy]():   anyOf(v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch),
	of[v1.PodSELinuxChangePolicy]():   anyOf(v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption),

	of[v1.MountPropagationMode]():  anyOf(v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional),
	of[v1.RecursiveReadOnlyMode](): anyOf(v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled),
	of[v1.HostPathType](): anyOf(v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
		v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev),
	of[v1.StorageMedium](): anyOf(v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages).
		or("HugePages-SIZE", regexp.MustCompile(`^HugePages-[0-9]{1,12}([KMGT]i|[kMGT])?$`)),
	of[v1.PersistentVolumeMode]():       anyOf(v1.PersistentVolumeFilesystem, v1.PersistentVolumeBlock),
	of[v1.PersistentVolumeAccessMode](): anyOf(v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod),
	of[v1.AzureDataDiskCachingMode]():   anyOf(v1.AzureDataDiskCachingNone, v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite),
	of[v1.AzureDataDiskKind]():          anyOf(v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk, v1.AzureManagedDisk),

	of[v1.NodeSelectorOperator](): anyOf(v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists,
		v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt),
	of[metav1.LabelSelectorOperator](): anyOf(metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
	of[v1.TolerationOperator]():        anyOf(v1.TolerationOpExists, v1.TolerationOpEqual, v1.TolerationOpLt, v1.TolerationOpGt).orUnset(),
	of[v1.TaintEffect]():               anyOf(v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute).orUnset(),

	of[v1.PersistentVolumeReclaimPolicy](): anyOf(v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRetain).orUnset(),

	of[v1.UnsatisfiableConstraintAction](): anyOf(v1.DoNotSchedule, v1.ScheduleAnyway),
	of[v1.NodeInclusionPolicy]():           anyOf(v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore),
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

func anyOf[T ~string](values ...T) word {
	w := word{}
	for _, v := range values {
		w.allowed = append(w.allowed, string(v))
	}
	return w
}

func (w word) orUnset() word {
	w.unset = true
	return w
}

func (w word) or(name string, pattern *regexp.Regexp) word {
	w.allowed, w.pattern = append(w.allowed, name), pattern
	return w
}

func (w word) takes(s string) bool {
	return slices.Contains(w.allowed, s) && (w.pattern == nil || s != w.allowed[len(w.allowed)-1]) || w.pattern != nil && w.pattern.MatchString(s)
}

// signals returns the names of the signals of signal(7). Real-time signals are named by
// their distance from the first or the last (KEP-4960).
func signals() word {
	w := anyOf(
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP",
		"SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF",
		"SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP",
		"SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH",
		"SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
	)
	for i := 1; i <= 15; i++ {
		w.allowed = append(w.allowed, fmt.Sprintf("SIGRTMIN+%d", i))
	}
	for i := 14; i >= 1; i-- {
		w.allowed = append(w.allowed, fmt.Sprintf("SIGRTMAX-%d", i))
	}
	return w
}

// words checks every field of the spec whose type is in the variable words.
func (v *checker) words() { v.wordsOf(&v.pod.Spec, field.NewPath("spec")) }

// Words checks the fields of a struct, and of the structs in it, that have types with certain allowed
// values, such as v1.RestartPolicy. It returns at most 20 errors. spec is a pointer to the struct,
// and path is the path of the struct in the errors.
func Words(spec any, path *field.Path) field.ErrorList {
	v := &checker{}
	v.wordsOf(spec, path)
	return v.errs
}

func (v *checker) wordsOf(spec any, at *field.Path) {
	s := reflect.ValueOf(spec).Elem()
	(&walk{v: v, root: at}).value(s, planOf(s.Type()))
}

// plan tells how to find the values to check in a value of a type. A nil plan means that there are
// none.
type plan struct {
	word   *word       // the type itself has allowed values
	elem   *plan       // plan for the elements of a pointer or a list
	fields []fieldPlan // fields of a struct with values to check
}

type fieldPlan struct {
	index int
	name  string // "" for an inlined field
	plan  *plan
}

// planOf returns the plan of a type. It computes each plan once. A type must not contain
// itself; no type in a pod's spec does.
var planOf = func() func(reflect.Type) *plan {
	var mu sync.Mutex
	made := map[reflect.Type]*plan{}
	var make func(reflect.Type) *plan
	make = func(t reflect.Type) *plan {
		if p, ok := made[t]; ok {
			return p
		}
		var p *plan
		if w, ok := words[t]; ok {
			p = &plan{word: &w}
		} else if k := t.Kind(); k == reflect.Pointer || k == reflect.Slice {
			if elem := make(t.Elem()); elem != nil {
				p = &plan{elem: elem}
			}
		} else if k == reflect.Struct {
			for i := range t.NumField() {
				f := t.Field(i)
				if !f.IsExported() {
					continue
				}
				if sub := make(f.Type); sub != nil {
					if p == nil {
						p = &plan{}
					}
					p.fields = append(p.fields, fieldPlan{index: i, name: jsonName(f), plan: sub})
				}
			}
		}
		made[t] = p
		return p
	}
	return func(t reflect.Type) *plan {
		mu.Lock()
		defer mu.Unlock()
		return make(t)
	}
}()

// walk is one pass over all values of a pod that have to be checked. It stores its position
// as names and indices, and builds a path only for an error.
type walk struct {
	v    *checker
	root *field.Path
	at   []step
}

type step struct {
	name  string
	index int // in a list; name is "" then
}

func (w *walk) value(val reflect.Value, p *plan) {
	switch {
	case p == nil || w.v.full():
	case p.word != nil:
		w.word(val, p.word, false)
	case p.elem == nil:
		for _, f := range p.fields {
			if f.name == "" {
				w.value(val.Field(f.index), f.plan)
				continue
			}
			w.in(step{name: f.name}, val.Field(f.index), f.plan)
		}
	case val.Kind() == reflect.Slice:
		for i := range val.Len() {
			w.in(step{index: i}, val.Index(i), p.elem)
		}
	case val.IsNil():
	case p.elem.word != nil:
		w.word(val.Elem(), p.elem.word, true)
	default:
		w.value(val.Elem(), p.elem)
	}
}

func (w *walk) in(s step, val reflect.Value, p *plan) {
	w.at = append(w.at, s)
	w.value(val, p)
	w.at = w.at[:len(w.at)-1]
}

// word adds an error if a value is not allowed. set is true if the field is set even though its value
// is empty.
func (w *walk) word(val reflect.Value, allowed *word, set bool) {
	s := val.String()
	if allowed.takes(s) || s == "" && allowed.unset && !set {
		return
	}
	path := w.root
	for _, s := range w.at {
		if s.name == "" {
			path = path.Index(s.index)
		} else {
			path = path.Child(s.name)
		}
	}
	w.v.add(field.NotSupported(path, clip(s), allowed.allowed))
}
