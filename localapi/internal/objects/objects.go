package objects

import (
	"cmp"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an API object of any kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Type describes a kind for this package.
type Type struct {
	schema.GroupVersionKind

	// Resource is the plural name, for errors.
	Resource string
	// Memory means that objects are only in memory.
	Memory bool
}

// Kind is a kind of objects. Kinds are compared with ==.
type Kind interface{ Type() Type }

// Key is the namespace and name of an object.
type Key struct{ Namespace, Name string }

// KeyOf returns the namespace and name of an object as a Key.
func KeyOf(o metav1.Object) Key { return Key{o.GetNamespace(), o.GetName()} }

// Compare compares by namespace, then by name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Ref identifies an object.
type Ref struct {
	Kind Kind
	Key  Key
}

// Origin says where an object comes from.
type Origin uint8

const (
	// Owned objects have their own file.
	Owned Origin = iota
	// Mirrored objects come from another source's manifest, and are read-only.
	Mirrored
	// Fleeting objects are only in memory.
	Fleeting
)

// Phase is the state of an object's existence.
type Phase uint8

const (
	// Absent is an object that does not exist.
	Absent Phase = iota
	// Live is an object that is not being deleted.
	Live
	// Ending is an object with a deletionTimestamp.
	Ending
)

// Entry is the current state of an object. The zero value is an object that does not exist.
type Entry struct {
	// Object is shared and never modified.
	Object Object
	Origin Origin
	// Source is the source of a Mirrored object.
	Source string
	// File is the file of an Owned object; At is the file's revision. Both are "" if
	// there is none.
	File, At string
	// Next replaces a Mirrored pod once nothing is left of the pod; nil for none.
	Next Object

	size int // approximate size in memory, in bytes
}

// Phase reports whether the object exists, is being deleted, or does not exist.
func (e Entry) Phase() Phase {
	switch {
	case e.Object == nil:
		return Absent
	case e.Object.GetDeletionTimestamp() == nil:
		return Live
	default:
		return Ending
	}
}

// Actor says who changes an object.
type Actor uint8

const (
	// Client is a user of the node's Kubernetes API, such as kubectl.
	Client Actor = iota
	// Agent is the node's agent, which for example writes the statuses of pods.
	Agent
	// File is a person who edits files.
	File
	// Clock is the server itself, for consequences of other changes and for deadlines.
	Clock
)

// Verb says what to do with an object.
type Verb uint8

const (
	// Create creates an object that does not exist.
	Create Verb = iota
	// Update changes an object. It changes the status only for kinds whose status has no other
	// writer.
	Update
	// Status changes only the status.
	Status
	// Replace replaces an object by another one. Both come from a File.
	Replace
	// Delete starts the deletion of an object.
	Delete
	// Gone reports that nothing is left of an object, or that its file is gone.
	Gone
	// Show stores an object of a Source's manifest.
	Show
	// Hide removes an object whose manifest is gone.
	Hide
	// Keep writes the file of an object that has none.
	Keep
)

// Change is what an actor wants to do with one object.
type Change struct {
	Kind  Kind
	Key   Key
	Actor Actor
	Verb  Verb
	// Object is the new object. The Set owns it from then on. With the verb Status, only its
	// status counts.
	Object Object
	// UID and Version are preconditions: if the object has another UID or resource version,
	// the change is rejected; "" allows any.
	UID     types.UID
	Version string
	// Grace is the grace period for Delete, in seconds; nil means the object's own.
	Grace *int64
	// Policy says how Delete handles dependents; "" means as the object's finalizers say.
	Policy metav1.DeletionPropagation
	// Wait is a finalizer that Delete adds, because the object is in use; "" for none.
	Wait string
	// By is the author to write in the file.
	By string
	// Read is the file that was read, with its revision. It is set if the actor is File.
	Read FileState
	// Source is the source of a shown object.
	Source string
	// DryRun checks the change without making it.
	DryRun bool
}

// FileState describes a file that was read.
type FileState struct {
	Name, At string
	// Complete means that the file has everything that the object must keep over a restart, such
	// as its UID.
	Complete bool
}

// Field returns a field of an object, which must be a pointer to a struct. It is invalid if there
// is no field with that name.
func Field(o Object, name string) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(name) }
