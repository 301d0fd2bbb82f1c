/* Interface of Cordon's accelerator. Made by accel-abi; change it there. */
#ifndef CORDON_ACCEL_H
#define CORDON_ACCEL_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

#define CORDON_ACCEL_ID_VALUE 0x41445243u
#define CORDON_ACCEL_VERSION_VALUE 1u
#define CORDON_ACCEL_PAGE 4096u
#define CORDON_ACCEL_RING_MIN 2u /* Fewest descriptors of a ring */
#define CORDON_ACCEL_RING_MAX 1024u /* Most descriptors of a ring; a power of two */
#define CORDON_ACCEL_SEGMENTS_MAX 64u /* Most entries of a segment list, links included */
#define CORDON_ACCEL_TRANSFER_MAX 1048576u /* Most bytes of a source or destination */
#define CORDON_ACCEL_AAD_MAX 65279u /* Most bytes of associated data */
#define CORDON_ACCEL_KEY_MAX 1800u /* Most bytes of a key */
#define CORDON_ACCEL_KEY_SLOTS 16u /* Key slots */
#define CORDON_ACCEL_SHOT_MAX 1024u /* Most bytes of a single shot's vector and source, and of its result */

/* Registers: offsets in bytes, and their bits. */
#define CORDON_ACCEL_ID 0x000u /* ro */
#define CORDON_ACCEL_VERSION 0x004u /* ro */
#define CORDON_ACCEL_CAPABILITIES 0x008u /* ro */
#define CORDON_ACCEL_CAPABILITIES_AES 0x1u
#define CORDON_ACCEL_CAPABILITIES_IBC 0x2u
#define CORDON_ACCEL_CAPABILITIES_HMAC 0x4u
#define CORDON_ACCEL_CAPABILITIES_MODULAR 0x8u
#define CORDON_ACCEL_CAPABILITIES_SINGLE_SHOT 0x10u
#define CORDON_ACCEL_CONTROL 0x00cu /* rw */
#define CORDON_ACCEL_CONTROL_ENABLE 0x1u
#define CORDON_ACCEL_CONTROL_RESET 0x2u
#define CORDON_ACCEL_CONTROL_ZEROISE 0x4u
#define CORDON_ACCEL_STATE 0x010u /* ro */
#define CORDON_ACCEL_STATE_ENABLED 0x1u
#define CORDON_ACCEL_STATE_BUSY 0x2u
#define CORDON_ACCEL_STATE_HALTED 0x4u
#define CORDON_ACCEL_INTERRUPT_ENABLE 0x014u /* rw */
#define CORDON_ACCEL_INTERRUPT_ENABLE_COMPLETION 0x1u
#define CORDON_ACCEL_INTERRUPT_ENABLE_HALT 0x2u
#define CORDON_ACCEL_INTERRUPT_STATUS 0x018u /* w1c */
#define CORDON_ACCEL_INTERRUPT_STATUS_COMPLETION 0x1u
#define CORDON_ACCEL_INTERRUPT_STATUS_HALT 0x2u
#define CORDON_ACCEL_RING_LOW 0x020u /* rw */
#define CORDON_ACCEL_RING_HIGH 0x024u /* rw */
#define CORDON_ACCEL_RING_SIZE 0x028u /* rw */
#define CORDON_ACCEL_PRODUCER 0x02cu /* rw */
#define CORDON_ACCEL_CONSUMER 0x030u /* ro */
#define CORDON_ACCEL_DMA_FAULTS 0x034u /* ro */
#define CORDON_ACCEL_SHOT_COMMAND 0x040u /* wo */
#define CORDON_ACCEL_SHOT_COMMAND_OPERATION 0xffu
#define CORDON_ACCEL_SHOT_COMMAND_ALGORITHM 0xff00u
#define CORDON_ACCEL_SHOT_COMMAND_MODE 0xff0000u
#define CORDON_ACCEL_SHOT_COMMAND_SLOT 0xff000000u
#define CORDON_ACCEL_SHOT_LENGTHS 0x044u /* wo */
#define CORDON_ACCEL_SHOT_LENGTHS_SOURCE 0xffffu
#define CORDON_ACCEL_SHOT_LENGTHS_AAD 0xffff0000u
#define CORDON_ACCEL_SHOT_SIZES 0x048u /* wo */
#define CORDON_ACCEL_SHOT_SIZES_IV 0xffu
#define CORDON_ACCEL_SHOT_SIZES_TAG 0xff00u
#define CORDON_ACCEL_SHOT_START 0x04cu /* wo */
#define CORDON_ACCEL_SHOT_STATUS 0x050u /* ro */
#define CORDON_ACCEL_SHOT_STATUS_OUTCOME 0xffffu
#define CORDON_ACCEL_SHOT_STATUS_NUMBER 0xffff0000u
#define CORDON_ACCEL_SHOT_PRODUCED 0x054u /* ro */
#define CORDON_ACCEL_SHOT_CYCLES 0x058u /* ro */
#define CORDON_ACCEL_SHOT_DATA 0x400u /* rw */

/* The register window: places in a page of shared memory. */
#define CORDON_ACCEL_WINDOW_MIRROR 0x000u
#define CORDON_ACCEL_WINDOW_POSTED 0x800u
#define CORDON_ACCEL_WINDOW_TAKEN 0x840u
#define CORDON_ACCEL_WINDOW_QUEUE 0xc00u
#define CORDON_ACCEL_WINDOW_QUEUE_LENGTH 64u

/* Numbers in descriptors. */
#define CORDON_ACCEL_OPERATION_ENCRYPT 1u
#define CORDON_ACCEL_OPERATION_DECRYPT 2u
#define CORDON_ACCEL_OPERATION_LOAD_KEY 3u
#define CORDON_ACCEL_OPERATION_ZEROISE_KEY 4u
#define CORDON_ACCEL_OPERATION_AUTHENTICATE 5u
#define CORDON_ACCEL_OPERATION_EXPONENTIATE 6u
#define CORDON_ACCEL_ALGORITHM_AES 1u
#define CORDON_ACCEL_ALGORITHM_IBC_128 2u
#define CORDON_ACCEL_ALGORITHM_IBC_128_STRONG 3u
#define CORDON_ACCEL_ALGORITHM_IBC_192 4u
#define CORDON_ACCEL_ALGORITHM_IBC_256 5u
#define CORDON_ACCEL_ALGORITHM_IBC_320 6u
#define CORDON_ACCEL_ALGORITHM_HMAC_SHA_1 7u
#define CORDON_ACCEL_ALGORITHM_HMAC_SHA_256 8u
#define CORDON_ACCEL_ALGORITHM_RSA 9u
#define CORDON_ACCEL_ALGORITHM_MODULAR 10u
#define CORDON_ACCEL_MODE_ECB 1u
#define CORDON_ACCEL_MODE_CBC 2u
#define CORDON_ACCEL_MODE_CTR 3u
#define CORDON_ACCEL_MODE_CFB 4u
#define CORDON_ACCEL_MODE_OFB 5u
#define CORDON_ACCEL_MODE_CTS 6u
#define CORDON_ACCEL_MODE_GCM 7u
#define CORDON_ACCEL_MODE_CCM 8u
#define CORDON_ACCEL_OWNED 0x80000000u
#define CORDON_ACCEL_STATUS_OK 1u
#define CORDON_ACCEL_STATUS_BAD_DESCRIPTOR 2u
#define CORDON_ACCEL_STATUS_UNSUPPORTED 3u
#define CORDON_ACCEL_STATUS_BAD_LENGTH 4u
#define CORDON_ACCEL_STATUS_BAD_ADDRESS 5u
#define CORDON_ACCEL_STATUS_BAD_LIST 6u
#define CORDON_ACCEL_STATUS_NO_KEY 7u
#define CORDON_ACCEL_STATUS_CORE_ALARM 8u
#define CORDON_ACCEL_STATUS_CORE_HUNG 9u
#define CORDON_ACCEL_STATUS_BAD_OPERAND 10u

/* A request in the ring; all numbers are little endian. */
struct cordon_accel_descriptor {
	uint8_t operation;
	uint8_t algorithm;
	uint8_t mode;
	uint8_t slot;
	uint32_t sequence;
	uint64_t source;
	uint64_t destination;
	uint32_t source_length;
	uint32_t aad_length;
	uint32_t destination_length;
	uint8_t iv_length;
	uint8_t tag_length;
	uint8_t reserved0[2];
	uint8_t iv[32];
	uint8_t reserved1[24];
	uint32_t check;
	uint32_t produced;
	uint64_t cycles;
	uint8_t reserved2[8];
	uint32_t status;
	uint32_t echo;
};

/* An entry of a segment list. */
struct cordon_accel_segment {
	uint64_t address;
	uint32_t length;
	uint16_t flags;
	uint16_t check;
};
#define CORDON_ACCEL_SEGMENT_LAST 0x1u
#define CORDON_ACCEL_SEGMENT_LINK 0x2u

#endif
