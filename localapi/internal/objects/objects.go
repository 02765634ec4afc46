package objects

import (
	"cmp"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is any object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Type is what this package has to know of a kind.
type Type struct {
	schema.GroupVersionKind

	// Resource is the plural that errors name.
	Resource string
	// Memory keeps objects in memory alone.
	Memory bool
}

// Kind is a kind of objects; kinds are compared by ==.
type Kind interface{ Type() Type }

// Key names an object of a kind.
type Key struct{ Namespace, Name string }

// KeyOf is the Key of an object.
func KeyOf(o metav1.Object) Key { return Key{o.GetNamespace(), o.GetName()} }

// Compare orders keys by namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Ref is where an object is.
type Ref struct {
	Kind Kind
	Key  Key
}

// Origin says who has an object.
type Origin uint8

const (
	// Owned objects have a file of their own.
	Owned Origin = iota
	// Mirrored objects are those of somebody else's manifest, and can only be read.
	Mirrored
	// Fleeting objects are in memory alone.
	Fleeting
)

// Phase is how far the life of an object is.
type Phase uint8

const (
	// Absent is an object that is not there.
	Absent Phase = iota
	// Live is an object that nobody has deleted.
	Live
	// Ending is an object with a deletionTimestamp.
	Ending
)

// Entry is an object as it is now; the zero value is one that is not there.
type Entry struct {
	// Object is shared and never changed.
	Object Object
	Origin Origin
	// Source is whose manifest a Mirrored object is of.
	Source string
	// File and At are where an Owned object is kept, and the revision of that; "" is nowhere.
	File, At string
	// Next takes the place of a Mirrored pod once nothing is left of it; nil is nothing.
	Next Object

	size int // about what it has in memory, in bytes
}

// Phase is how far the life of the object is.
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

// Actor is who changes an object.
type Actor uint8

const (
	// Client is a client of the API.
	Client Actor = iota
	// Agent is the node's agent.
	Agent
	// File is a person who edits files.
	File
	// Clock is the server itself: what follows from other changes, or from time.
	Clock
)

// Verb is what is done with an object.
type Verb uint8

const (
	// Create makes an object that is not there.
	Create Verb = iota
	// Update changes an object, but its status only as far as its kind has no other writer of it.
	Update
	// Status changes the status alone.
	Status
	// Replace puts another object in the place of one, for both of whom a File stands.
	Replace
	// Delete asks for the end of an object.
	Delete
	// Gone says that nothing is left of an object, or that its file is not there.
	Gone
	// Show has an object of a Source's manifest as it is.
	Show
	// Hide ends an object whose manifest is not there any more.
	Hide
	// Keep writes an object that has no file yet.
	Keep
)

// Change is what somebody wants of one object.
type Change struct {
	Kind  Kind
	Key   Key
	Actor Actor
	Verb  Verb
	// Object is what the object is to be. It is the Set's afterwards. With Verb Status only its status counts.
	Object Object
	// UID and Version refuse the change if the object has others; "" is any.
	UID     types.UID
	Version string
	// Grace is how many seconds a Delete asks for; nil is what the object says itself.
	Grace *int64
	// Policy is how a Delete goes on with the dependents; "" is what the object's finalizers say.
	Policy metav1.DeletionPropagation
	// Wait is a finalizer that a Delete gives the object, as somebody uses it; "" is none.
	Wait string
	// By is who its file is to name.
	By string
	// Read is the file that Actor File has read, and its revision.
	Read FileState
	// Source is whose manifest is shown.
	Source string
	// DryRun has nothing take effect.
	DryRun bool
}

// FileState is a file as it was read.
type FileState struct {
	Name, At string
	// Complete is a file that has all that the object is to keep over a restart, such as its UID.
	Complete bool
}

// Field is a field of a pointer to a struct that is an object; invalid if there is none of that name.
func Field(o Object, name string) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(name) }
