/*
 * Functions that are resolved at their first call. Each has a slot and jumps to the address in it, with all
 * its arguments untouched, however many there are. The slot first points to a piece of code that calls
 * slot_target(), which finds the function, and then jumps to that function. Later calls cost one jump.
 *
 * The preload's MPI_X are such functions (entry/entry.c), and so are the PMPI_X that the bridges call
 * (host.c).
 */
#ifndef UNISONO_MPI_SLOTS_H
#define UNISONO_MPI_SLOTS_H

struct slot {
	void *_Atomic function; /* the address that a call jumps to */
	const char *name;
	void *first; /* the code that resolves the function */
};

/* All slots of this library: the linker defines these two symbols. */
extern struct slot __start_unisono_slots[] __attribute__((visibility("hidden")));
extern struct slot __stop_unisono_slots[] __attribute__((visibility("hidden")));

/* Finds the function for a slot; `caller` is the call's return address. Each library defines its own. */
__attribute__((visibility("hidden"), used)) void *slot_target(struct slot *slot, void *caller);

/* clang-format off */
#define SLOT_DATA(symbol)                                                                                    \
	".pushsection .rodata.unisono_names, \"a\", %progbits\n"                                              \
	".Lname_" symbol ": .asciz \"" symbol "\"\n"                                                          \
	".popsection\n"                                                                                       \
	".pushsection unisono_slots, \"aw\", %progbits\n"                                                     \
	".balign 8\n"                                                                                         \
	".Lslot_" symbol ": .quad .Lfirst_" symbol ", .Lname_" symbol ", .Lfirst_" symbol "\n"                \
	".popsection\n"

#if defined(__x86_64__)
#define SLOT_CODE(symbol)                                                                                    \
	symbol ": endbr64\n"                                                                                  \
	"jmp *.Lslot_" symbol "(%rip)\n"                                                                      \
	".Lfirst_" symbol ": endbr64\n"                                                                       \
	"leaq .Lslot_" symbol "(%rip), %r11\n"                                                                \
	"jmp unisono_slot_first\n"
/* Saves the registers that carry arguments, and rax, which holds the number of vector registers. Seven
 * words and the return address keep the stack aligned. No MPI function has arguments in vector registers. */
#define SLOTS_FIRST                                                                                          \
	asm(".text\n.hidden unisono_slot_first\n.type unisono_slot_first, %function\n"                        \
	    "unisono_slot_first:\n"                                                                           \
	    "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"                     \
	    "movq %r11, %rdi\nmovq 56(%rsp), %rsi\ncall slot_target\nmovq %rax, %r11\n"                       \
	    "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"                            \
	    "jmp *%r11\n"                                                                                     \
	    ".size unisono_slot_first, . - unisono_slot_first\n")
#elif defined(__aarch64__)
#define SLOT_CODE(symbol)                                                                                    \
	symbol ": hint #34\n"                                                                                 \
	"adrp x16, .Lslot_" symbol "\n"                                                                       \
	"ldr x16, [x16, #:lo12:.Lslot_" symbol "]\n"                                                          \
	"br x16\n"                                                                                            \
	".Lfirst_" symbol ": hint #34\n"                                                                      \
	"adrp x17, .Lslot_" symbol "\n"                                                                       \
	"add x17, x17, #:lo12:.Lslot_" symbol "\n"                                                            \
	"b unisono_slot_first\n"
#define SLOTS_FIRST                                                                                          \
	asm(".text\n.hidden unisono_slot_first\n.type unisono_slot_first, %function\n"                        \
	    "unisono_slot_first:\n"                                                                           \
	    "stp x29, x30, [sp, #-96]!\nmov x29, sp\n"                                                        \
	    "stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\nstp x4, x5, [sp, #48]\n"                           \
	    "stp x6, x7, [sp, #64]\nstr x8, [sp, #80]\n"                                                      \
	    "mov x0, x17\nmov x1, x30\nbl slot_target\nmov x16, x0\n"                                         \
	    "ldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]\nldp x4, x5, [sp, #48]\n"                           \
	    "ldp x6, x7, [sp, #64]\nldr x8, [sp, #80]\nldp x29, x30, [sp], #96\n"                             \
	    "br x16\n"                                                                                        \
	    ".size unisono_slot_first, . - unisono_slot_first\n")
#else
#error "the jumps through slots are written for x86-64 and aarch64"
#endif

/*
 * Defines a function of this name with its slot; `kind` is .globl, or .hidden for a function that only this
 * library calls.
 */
#define SLOT(kind, symbol)                                                                                   \
	asm(SLOT_DATA(symbol)                                                                                 \
	    ".text\n.balign 16\n" kind " " symbol "\n.type " symbol ", %function\n"                           \
	    SLOT_CODE(symbol)                                                                                 \
	    ".size " symbol ", . - " symbol "\n");
/* clang-format on */

#endif
