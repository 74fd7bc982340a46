/*
 * Datatypes. The shim decodes each datatype once (envelope and contents, MPI-4.0 section 5.1.13) into the
 * library's layout, and keeps the layout in a table by handle. An attribute's delete callback removes the
 * layout together with the datatype, so that a reused handle gets a layout of its own.
 *
 * Datatypes that the decoder does not know (distributed arrays) are traced: the shim packs bytes that hold
 * their own offsets, and the packed bytes tell where the data lies.
 */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

struct type *_Atomic types[TYPE_SLOTS];
/* recursive: decoding a type may free a part of it */
static pthread_mutex_t guard = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct type *_Atomic unused; /* never freed: another thread may still read the handle in it */
static int keyval = MPI_KEYVAL_INVALID;

enum { OPAQUE }; /* no element: data without arithmetic */

struct named {
	MPI_Datatype handle;
	int element;
};

/* Returns the element type of a predefined type; OPAQUE for types without arithmetic. */
static int element_of(MPI_Datatype handle)
{
	const struct named known[] = {
		{ MPI_CHAR, UNISONO_ELEMENT_I8 },
		{ MPI_SIGNED_CHAR, UNISONO_ELEMENT_I8 },
		{ MPI_UNSIGNED_CHAR, UNISONO_ELEMENT_U8 },
		{ MPI_BYTE, UNISONO_ELEMENT_BYTE },
		{ MPI_PACKED, UNISONO_ELEMENT_BYTE },
		{ MPI_SHORT, UNISONO_ELEMENT_I16 },
		{ MPI_UNSIGNED_SHORT, UNISONO_ELEMENT_U16 },
		{ MPI_INT, UNISONO_ELEMENT_I32 },
		{ MPI_UNSIGNED, UNISONO_ELEMENT_U32 },
		{ MPI_LONG, UNISONO_ELEMENT_I64 },
		{ MPI_UNSIGNED_LONG, UNISONO_ELEMENT_U64 },
		{ MPI_LONG_LONG_INT, UNISONO_ELEMENT_I64 },
		{ MPI_UNSIGNED_LONG_LONG, UNISONO_ELEMENT_U64 },
		{ MPI_FLOAT, UNISONO_ELEMENT_F32 },
		{ MPI_DOUBLE, UNISONO_ELEMENT_F64 },
#if defined(__x86_64__) /* on other processors it is another type, without arithmetic */
		{ MPI_LONG_DOUBLE, UNISONO_ELEMENT_LONG_DOUBLE },
		{ MPI_C_LONG_DOUBLE_COMPLEX, UNISONO_ELEMENT_COMPLEX_LONG },
		{ MPI_CXX_LONG_DOUBLE_COMPLEX, UNISONO_ELEMENT_COMPLEX_LONG },
		{ MPI_LONG_DOUBLE_INT, UNISONO_ELEMENT_LONG_DOUBLE_INT },
#endif
		{ MPI_WCHAR, UNISONO_ELEMENT_I32 },
		{ MPI_INT8_T, UNISONO_ELEMENT_I8 },
		{ MPI_INT16_T, UNISONO_ELEMENT_I16 },
		{ MPI_INT32_T, UNISONO_ELEMENT_I32 },
		{ MPI_INT64_T, UNISONO_ELEMENT_I64 },
		{ MPI_UINT8_T, UNISONO_ELEMENT_U8 },
		{ MPI_UINT16_T, UNISONO_ELEMENT_U16 },
		{ MPI_UINT32_T, UNISONO_ELEMENT_U32 },
		{ MPI_UINT64_T, UNISONO_ELEMENT_U64 },
		{ MPI_AINT, UNISONO_ELEMENT_I64 },
		{ MPI_OFFSET, UNISONO_ELEMENT_I64 },
		{ MPI_COUNT, UNISONO_ELEMENT_I64 },
		{ MPI_C_BOOL, UNISONO_ELEMENT_BOOL },
		{ MPI_CXX_BOOL, UNISONO_ELEMENT_BOOL },
		{ MPI_C_FLOAT_COMPLEX, UNISONO_ELEMENT_COMPLEX32 },
		{ MPI_C_DOUBLE_COMPLEX, UNISONO_ELEMENT_COMPLEX64 },
		{ MPI_CXX_FLOAT_COMPLEX, UNISONO_ELEMENT_COMPLEX32 },
		{ MPI_CXX_DOUBLE_COMPLEX, UNISONO_ELEMENT_COMPLEX64 },
		{ MPI_FLOAT_INT, UNISONO_ELEMENT_F32_INT },
		{ MPI_DOUBLE_INT, UNISONO_ELEMENT_F64_INT },
		{ MPI_2INT, UNISONO_ELEMENT_INT_INT },
		{ MPI_LONG_INT, UNISONO_ELEMENT_LONG_INT },
		{ MPI_SHORT_INT, UNISONO_ELEMENT_SHORT_INT },
		{ MPI_CHARACTER, UNISONO_ELEMENT_BYTE },
		{ MPI_LOGICAL, UNISONO_ELEMENT_I32 },
		{ MPI_INTEGER, UNISONO_ELEMENT_I32 },
		{ MPI_INTEGER1, UNISONO_ELEMENT_I8 },
		{ MPI_INTEGER2, UNISONO_ELEMENT_I16 },
		{ MPI_INTEGER4, UNISONO_ELEMENT_I32 },
		{ MPI_INTEGER8, UNISONO_ELEMENT_I64 },
		{ MPI_REAL, UNISONO_ELEMENT_F32 },
		{ MPI_REAL4, UNISONO_ELEMENT_F32 },
		{ MPI_REAL8, UNISONO_ELEMENT_F64 },
		{ MPI_DOUBLE_PRECISION, UNISONO_ELEMENT_F64 },
		{ MPI_COMPLEX, UNISONO_ELEMENT_COMPLEX32 },
		{ MPI_COMPLEX8, UNISONO_ELEMENT_COMPLEX32 },
		{ MPI_COMPLEX16, UNISONO_ELEMENT_COMPLEX64 },
		{ MPI_DOUBLE_COMPLEX, UNISONO_ELEMENT_COMPLEX64 },
		{ MPI_2INTEGER, UNISONO_ELEMENT_INT_INT },
		{ MPI_2REAL, UNISONO_ELEMENT_F32F32 },
		{ MPI_2DOUBLE_PRECISION, UNISONO_ELEMENT_F64F64 },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].handle == handle)
			return known[i].element;
	return OPAQUE;
}

/*
 * Returns an element type that accumulates can replace and read but not calculate with, for types that only
 * some compilers have.
 */
static int bits_of(MPI_Aint bytes)
{
	return bytes == 1    ? UNISONO_ELEMENT_BYTE
	       : bytes == 16 ? UNISONO_ELEMENT_BITS128
	       : bytes == 32 ? UNISONO_ELEMENT_BITS256
			     : OPAQUE;
}

static MPI_Aint extent_of(MPI_Datatype handle)
{
	MPI_Aint low, extent;

	return PMPI_Type_get_extent(handle, &low, &extent) ? 0 : extent;
}

/* Finds the offsets of any type's data by packing bytes that hold their own offsets, 8 bits at a time. */
static unisono_layout *traced(MPI_Datatype handle, int element)
{
	MPI_Aint low, bytes;
	int size, at;
	unisono_layout *type = NULL;

	if (PMPI_Type_get_true_extent(handle, &low, &bytes) || PMPI_Type_size(handle, &size) || size < 0)
		return NULL;
	unsigned char *marks = malloc(bytes + 1), *packed = malloc(size + 1);
	int64_t *offsets = calloc(size + 1, sizeof *offsets);

	if (marks && packed && offsets) {
		for (int digit = 0; digit < 8 && (bytes - 1) >> 8 * digit > 0; digit++) {
			for (MPI_Aint i = 0; i < bytes; i++)
				marks[i] = (unsigned char)(i >> 8 * digit);
			at = 0;
			if (PMPI_Pack((char *)((uintptr_t)marks - low), 1, handle, packed, size, &at,
				      MPI_COMM_SELF) ||
			    at != size)
				goto done;
			for (int i = 0; i < size; i++)
				offsets[i] |= (int64_t)packed[i] << 8 * digit;
		}
		for (int i = 0; i < size; i++)
			offsets[i] += low;
		type = unisono_mpi_layout_traced(offsets, size, extent_of(handle), element);
	}
done:
	free(marks);
	free(packed);
	free(offsets);
	return type;
}

/*
 * Whether a layout has the padding of pairs such as MPI_DOUBLE_INT. Accumulates combine whole elements of the
 * engine, which have the extent of a pair in C. Puts and gets move only the data: the other side may be a
 * structure, and its padding the program's.
 */
enum padding { WITHOUT_PADDING, WITH_PADDING };

static unisono_layout *named(MPI_Datatype handle, int element, enum padding padding)
{
	MPI_Aint extent = extent_of(handle);
	int size = 0;

	if (padding == WITHOUT_PADDING && !PMPI_Type_size(handle, &size) && size != extent)
		return traced(handle, OPAQUE);
	return unisono_mpi_layout_named(element, extent);
}

static unisono_layout *described(MPI_Datatype handle, enum padding padding);

/* A constructor's arguments: as MPI returns them, sorted into places, and as the library takes them. */
struct contents {
	int *ints;
	MPI_Aint *aints;
	MPI_Datatype *children;
	int child_count;
	int64_t *integers, *addresses; /* in the order of the constructor with int counts */
	int64_t *numbers, *places;     /* arguments for the library */
	unisono_layout **types;
};

#if MPI_VERSION >= 4
/* Whether the host has functions with large counts; Open MPI up to 5.0 has none. */
static bool host_has_large_counts(void)
{
	static _Atomic int known; /* 1: it has them; -1: it does not */

	if (!known)
		known = host_if_any("PMPI_Type_get_envelope_c") ? 1 : -1;
	return known > 0;
}
#endif

/* Returns the constructor of a type, and whether its counts were large. */
static int combiner_of(MPI_Datatype handle, bool *large)
{
	int combiner;
	int counts[3], code;

#if MPI_VERSION >= 4
	if (host_has_large_counts()) {
		MPI_Count wide[4]; /* the int form refuses types whose counts are large */

		code = PMPI_Type_get_envelope_c(handle, &wide[0], &wide[1], &wide[2], &wide[3], &combiner);
		*large = !code && wide[2] > 0;
		return code ? MPI_UNDEFINED : combiner;
	}
#endif
	code = PMPI_Type_get_envelope(handle, &counts[0], &counts[1], &counts[2], &combiner);
	*large = false;
	return code ? MPI_UNDEFINED : combiner;
}

static bool predefined(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_INTEGER || combiner == MPI_COMBINER_F90_COMPLEX;
}

static void contents_free(struct contents *contents)
{
	for (int i = 0; i < contents->child_count; i++) {
		bool large;

		if (contents->types[i])
			unisono_layout_free(&contents->types[i]);
		/* MPI gave us the types that are not predefined, so free them */
		if (!predefined(combiner_of(contents->children[i], &large)))
			PMPI_Type_free(&contents->children[i]);
	}
	free(contents->ints);
	free(contents->aints);
	free(contents->children);
	free(contents->integers);
	free(contents->addresses);
	free(contents->numbers);
	free(contents->places);
	free(contents->types);
}

static bool contents_alloc(struct contents *of, size_t most, size_t children)
{
	of->ints = calloc(most, sizeof *of->ints);
	of->aints = calloc(most, sizeof *of->aints);
	of->children = calloc(children, sizeof *of->children);
	of->integers = calloc(most, sizeof *of->integers);
	of->addresses = calloc(most, sizeof *of->addresses);
	of->numbers = calloc(most, sizeof *of->numbers);
	of->places = calloc(most, sizeof *of->places);
	of->types = calloc(children, sizeof *of->types);
	return of->ints && of->aints && of->children && of->integers && of->addresses && of->numbers &&
	       of->places && of->types;
}

/* Makes a layout of blocks of one or several lengths, with displacements in bytes or extents. */
static unisono_layout *blocks(struct contents *of, int64_t extent, const int64_t *lengths, bool one_length,
			      const int64_t *places)
{
	int64_t count = of->integers[0], unit = places ? extent_of(of->children[0]) : 0;

	for (int64_t i = 0; i < count; i++) {
		of->numbers[i] = lengths[one_length ? 0 : i];
		of->places[i] = places ? places[i] * unit : of->addresses[i];
	}
	return unisono_mpi_layout_combine(UNISONO_MPI_COMBINER_BLOCKS, extent, of->numbers, count, of->places,
					  count, (const unisono_layout *const *)of->types, of->child_count);
}

static unisono_layout *vector(struct contents *of, int64_t extent, int64_t stride)
{
	return unisono_mpi_layout_combine(UNISONO_MPI_COMBINER_VECTOR, extent, of->integers, 2, &stride, 1,
					  (const unisono_layout *const *)of->types, 1);
}

static unisono_layout *plain(struct contents *of, int combiner, int64_t extent, size_t integers)
{
	return unisono_mpi_layout_combine(combiner, extent, of->integers, integers, of->places, 0,
					  (const unisono_layout *const *)of->types, 1);
}

static unisono_layout *combined(MPI_Datatype handle, int combiner, struct contents *of)
{
	int64_t extent = extent_of(handle);
	int64_t *integers = of->integers;

	switch (combiner) {
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_RESIZED:
		return plain(of, UNISONO_MPI_COMBINER_RESIZED, extent, 0);
	case MPI_COMBINER_CONTIGUOUS:
		return plain(of, UNISONO_MPI_COMBINER_CONTIGUOUS, extent, 1);
	case MPI_COMBINER_VECTOR:
		return vector(of, extent, integers[2] * extent_of(of->children[0]));
	case MPI_COMBINER_HVECTOR:
		return vector(of, extent, of->addresses[0]);
	case MPI_COMBINER_INDEXED:
		return blocks(of, extent, integers + 1, false, integers + 1 + integers[0]);
	case MPI_COMBINER_HINDEXED:
	case MPI_COMBINER_STRUCT:
		return blocks(of, extent, integers + 1, false, NULL);
	case MPI_COMBINER_INDEXED_BLOCK:
		return blocks(of, extent, integers + 1, true, integers + 2);
	case MPI_COMBINER_HINDEXED_BLOCK:
		return blocks(of, extent, integers + 1, true, NULL);
	case MPI_COMBINER_SUBARRAY:
		integers[3 * integers[0] + 1] = integers[3 * integers[0] + 1] == MPI_ORDER_FORTRAN;
		return plain(of, UNISONO_MPI_COMBINER_SUBARRAY, extent, 3 * integers[0] + 2);
	default: {
		int element = unisono_mpi_layout_element(of->types[0]);

		for (int i = 1; i < of->child_count; i++)
			if (unisono_mpi_layout_element(of->types[i]) != element)
				element = OPAQUE;
		return traced(handle, element);
	}
	}
}

/* Gets a constructor's arguments; false if they cannot be used. */
static bool contents_get(MPI_Datatype handle, struct contents *of)
{
	int integers, addresses, children, combiner;

	if (PMPI_Type_get_envelope(handle, &integers, &addresses, &children, &combiner) || children == 0 ||
	    !contents_alloc(of, (size_t)integers + addresses + 2, children) ||
	    PMPI_Type_get_contents(handle, integers, addresses, children, of->ints, of->aints, of->children))
		return false;
	of->child_count = children;
	for (int i = 0; i < integers; i++)
		of->integers[i] = of->ints[i];
	for (int i = 0; i < addresses; i++)
		of->addresses[i] = of->aints[i];
	return true;
}

#if MPI_VERSION >= 4
/*
 * Gets the arguments of a constructor with large counts, in the order of the constructor with int counts:
 * displacements and strides in bytes follow the counts in that form, and are addresses here. False if there
 * are no large counts, or if the arguments cannot be obtained.
 */
static bool contents_get_large(MPI_Datatype handle, struct contents *of)
{
	MPI_Count integers, addresses, large, children;
	int combiner;

	if (PMPI_Type_get_envelope_c(handle, &integers, &addresses, &large, &children, &combiner) ||
	    large == 0 || children == 0)
		return false;
	MPI_Count *counts = calloc(large, sizeof *counts);
	bool good = counts && contents_alloc(of, integers + addresses + large + 2, children) &&
		    !PMPI_Type_get_contents_c(handle, integers, addresses, large, children, of->ints,
					      of->aints, counts, of->children);
	if (good) {
		MPI_Count places = combiner == MPI_COMBINER_HVECTOR	     ? 2
				   : combiner == MPI_COMBINER_HINDEXED_BLOCK ? 2
				   : combiner == MPI_COMBINER_HINDEXED	     ? 1 + counts[0]
				   : combiner == MPI_COMBINER_STRUCT	     ? 1 + counts[0]
									     : large;
		bool box = combiner == MPI_COMBINER_SUBARRAY;

		of->child_count = (int)children;
		/* a subarray's dimensions and order are ints in this form too */
		if (box)
			of->integers[0] = of->ints[0];
		for (MPI_Count i = 0; i < large; i++)
			if (i < places)
				of->integers[i + box] = counts[i];
			else
				of->addresses[i - places] = counts[i];
		if (box)
			of->integers[large + 1] = of->ints[1];
	}
	free(counts);
	return good;
}
#endif

/* Makes a layout. The caller frees it. */
static unisono_layout *described(MPI_Datatype handle, enum padding padding)
{
	struct contents of = { 0 };
	unisono_layout *type = NULL;
	bool known, large;
	int element, size;
	int combiner = combiner_of(handle, &large);

	switch (combiner) {
	case MPI_UNDEFINED:
		return NULL;
	case MPI_COMBINER_NAMED:
		element = element_of(handle);
		return named(handle, element ? element : bits_of(extent_of(handle)), padding);
	case MPI_COMBINER_F90_INTEGER: {
		static const int by_size[] = { [1] = UNISONO_ELEMENT_I8,
					       [2] = UNISONO_ELEMENT_I16,
					       [4] = UNISONO_ELEMENT_I32,
					       [8] = UNISONO_ELEMENT_I64 };
		MPI_Aint size = extent_of(handle);
		return named(handle, size <= 8 ? by_size[size] : bits_of(size), padding);
	}
	case MPI_COMBINER_F90_REAL:
		return named(handle,
			     extent_of(handle) == 4   ? UNISONO_ELEMENT_F32
			     : extent_of(handle) == 8 ? UNISONO_ELEMENT_F64
						      : bits_of(extent_of(handle)),
			     padding);
	case MPI_COMBINER_F90_COMPLEX:
		return named(handle,
			     extent_of(handle) == 8    ? UNISONO_ELEMENT_COMPLEX32
			     : extent_of(handle) == 16 ? UNISONO_ELEMENT_COMPLEX64
						       : bits_of(extent_of(handle)),
			     padding);
	}
	/* a structure without blocks has no child to describe */
	if (combiner == MPI_COMBINER_STRUCT && !PMPI_Type_size(handle, &size) && size == 0)
		return unisono_mpi_layout_named(OPAQUE, 0);
#if MPI_VERSION >= 4
	known = large ? contents_get_large(handle, &of) : contents_get(handle, &of);
#else
	known = contents_get(handle, &of);
#endif
	for (int i = 0; i < of.child_count; i++)
		known &= (of.types[i] = described(of.children[i], padding)) != NULL;
	if (known)
		type = combined(handle, combiner, &of);
	contents_free(&of);
	return type;
}

static int forget(MPI_Datatype handle, int key, void *value, void *extra)
{
	struct type *type = value;
	struct type *expected = type;

	(void)key;
	(void)extra;
	atomic_compare_exchange_strong(&types[type_slot(handle)], &expected, NULL);
	pthread_mutex_lock(&guard);
	if (type->moved != type->layout)
		unisono_layout_free(&type->moved);
	unisono_layout_free(&type->layout);
	type->layout = (unisono_layout *)atomic_load(&unused);
	atomic_store(&unused, type);
	pthread_mutex_unlock(&guard);
	return MPI_SUCCESS;
}

/* Describes a type for puts and gets, whose layout for accumulates is `combined`; returns that one if it has
 * no padding. */
static unisono_layout *moved(MPI_Datatype handle, unisono_layout *combined)
{
	int size;

	if (PMPI_Type_size(handle, &size) || size < 0 || (uint64_t)size == unisono_layout_size(combined))
		return combined;
	return described(handle, WITHOUT_PADDING);
}

/* The slow path of type_of(): the first use of a type, or of a type that shares its slot with another. */
const struct type *type_described(MPI_Datatype handle)
{
	int found = 0;
	struct type *type = NULL;

	if (handle == MPI_DATATYPE_NULL)
		return NULL;
	setup();
	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget, &keyval, NULL);
	if (PMPI_Type_get_attr(handle, keyval, &type, &found)) {
		pthread_mutex_unlock(&guard);
		return NULL;
	}
	if (!found) {
		unisono_layout *layout = described(handle, WITH_PADDING);
		unisono_layout *data = layout ? moved(handle, layout) : described(handle, WITHOUT_PADDING);

		if (!layout) /* a distributed array of pairs: no accumulate takes it */
			layout = data;

		type = atomic_load(&unused);
		if (type)
			atomic_store(&unused, (struct type *)type->layout);
		else
			type = malloc(sizeof *type);
		if (!data || !type) {
			pthread_mutex_unlock(&guard);
			return NULL;
		}
		type->handle = handle;
		type->layout = layout;
		type->moved = data;
		PMPI_Type_set_attr(handle, keyval, type);
	}
	pthread_mutex_unlock(&guard);
	atomic_store_explicit(&types[type_slot(handle)], type, memory_order_release);
	return type;
}
